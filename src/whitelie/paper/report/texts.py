"""Where the paper is wrong or silent, and how its experiments are read here."""

READINGS = (
    (
        "Exploration f(t) = ln t + 3·ln ln t is negative at t = 2 and undefined at t = 1.",
        "Cut off at 0. t counts feedbacks received.",
    ),
    (
        "The domain of the kl index is not said; through a noisy channel it leaves [0, 1].",
        "The formula is read literally: an affine corruption function is inverted on the whole "
        "line.",
    ),
    (
        "Ties and the order of first pulls are not said. The best arm is arm 1 in every "
        "experiment, so that “the first wins” would flatter every algorithm.",
        "Ties and first pulls are decided at random.",
    ),
    (
        "WRAPPER feeds inverted bits to algorithms for [0, 1]; at p = .6 they are −2 and 3.",
        "The inverse values of all arms are rescaled to [0, 1] by one common affine map. Clipping "
        "each would turn WRAPPER into the naive algorithm.",
    ),
    (
        "Corollaries 2 and 3 print 2·ln T/(Δ·slope²); Pinsker's inequality gives "
        "ln T/(2·Δ·slope²).",
        "Both are drawn. On the main problem the printed one exceeds Δ·T for ε ≤ ½.",
    ),
    (
        "The condition for local privacy names two of four ratios of probabilities.",
        "ε is the largest of all four, per report; k reports of one person cost k·ε.",
    ),
    (
        "Randomised response is called optimal in the low-privacy regime.",
        "For binary rewards symmetric randomised response is optimal at every ε.",
    ),
    (
        "The input ε of DP-UCB-INT is taken for its privacy.",
        "Its releases compose; the total with its δ is computed (Kairouz, Oh and Viswanath, "
        "Theorem 3.5) and stated in the labels. “Calibrated” releases so seldom that the "
        "total is ε = 1. The published loop also redraws the noise of arms that were not "
        "pulled, which its own accounting leaves out: here noise is drawn once per release.",
    ),
    (
        "WR(UCB1) and UCB-CF are defined, but have no curve in the paper's figures.",
        "They are drawn and marked †.",
    ),
    (
        "Regret is not said to be free of the noise of single rewards.",
        "Pseudo-regret: gaps times pulls.",
    ),
)
