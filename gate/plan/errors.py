"""The one error that the planner tells its user in a sentence."""


class PlanError(ValueError):
    """What was asked for cannot be planned; the message says why, and what would do."""
