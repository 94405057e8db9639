"""What privacy costs, before it is spent: a design in, options and a recommendation out."""

from whitelie.planning.budget import Budget
from whitelie.planning.design import Design
from whitelie.planning.knowing import Chance, Time
from whitelie.planning.option import Option
from whitelie.planning.proposal import Plan, plan
from whitelie.planning.recommendation import Recommendation

__all__ = ["Budget", "Chance", "Design", "Option", "Plan", "Recommendation", "Time", "plan"]
