"""What privacy costs, before it is spent: a design in, options and a recommendation out."""

from whitelie.planning.budget import Budget
from whitelie.planning.certified import Certified, Mean
from whitelie.planning.comparison import Comparison, Frontier, FrontierPoint
from whitelie.planning.design import Design
from whitelie.planning.goal import Goal
from whitelie.planning.option import Option
from whitelie.planning.proposal import Plan, plan
from whitelie.planning.recommendation import Recommendation
from whitelie.planning.times import Chance, Time

__all__ = [
    "Budget",
    "Certified",
    "Chance",
    "Comparison",
    "Design",
    "Frontier",
    "FrontierPoint",
    "Goal",
    "Mean",
    "Option",
    "Plan",
    "Recommendation",
    "Time",
    "plan",
]
