"""``python -m gate plan``: what query replication costs and saves, and whether to switch it on.

``models`` says what a model's MLA layers are, ``deployment`` how they are split over ranks,
``memory`` what replication keeps on each rank, ``work`` what each part of a decode step moves
and computes, ``machine`` how long a machine takes for that, ``calibration`` how its constants
come from measured ``rows``, ``prediction`` what follows for a step. ``terminal`` and ``plot``
show it.
"""
