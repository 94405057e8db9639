"""The paper, reproduced: its settings as data, its runs, figures and claims, one report."""
