"""The public statement: what devices are promised, in a form that they can check."""

import hashlib

import msgspec

from whitelie.service import wire
from whitelie.service.experiment.canonical_json import canonical
from whitelie.service.experiment.definition import Experiment, finite

STORED = [
    "experiments, their arms and channels",
    "for every arm and minute of decision: how many were issued, answered, and answered by 1",
    "one bit per decision, whether it was answered, until its token expires",
    "for every arm: what was shown to readers in steps of several reports, and in which minutes",
    "hashes of keys",
]
NOT_STORED = [
    "rewards: they never leave the device",
    "a row for any decision or report",
    "addresses, user agents, user ids, cookies, or an access log",
]
NOT_GUARANTEED = [
    "that a page embeds an honest client: check on the device what leaves it",
    "a limit over many reports: k reports of one person reveal k times epsilon; devices keep "
    "the ledger",
    "that coming back to the page at all is independent of the outcome",
]


def statement_of(slug: str, experiment: Experiment) -> wire.Privacy:
    """Return the statement of an experiment, with its hash."""
    coins = {(channel.p00, channel.p11): channel.epsilon for channel in experiment.channels}
    statement = wire.Privacy(
        experiment=slug,
        epsilon=finite(experiment.epsilon),
        channels=[wire.Channel(*coin, finite(epsilon)) for coin, epsilon in sorted(coins.items())],
        window=experiment.window,
        spread=experiment.spread,
        sending=experiment.sending,
        feedback_ttl=experiment.feedback_ttl,
        retention=experiment.retention,
        step=experiment.step,
        stored=STORED,
        not_stored=NOT_STORED,
        not_guaranteed=NOT_GUARANTEED,
    )
    said = msgspec.to_builtins(statement)
    del said["hash"]
    statement.hash = hashlib.sha256(canonical(said).encode()).hexdigest()
    return statement
