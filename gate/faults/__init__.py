"""Seeded faults: what share of the mistakes that people make here does the suite catch?

``python -m gate faults`` puts one fault after another into a subject's source, in memory,
and runs the properties of the fault's own clause. ``fault`` reads the catalogs of named faults,
``mutants`` makes generic ones, ``source`` edits text, ``seeding`` brings edited text to life,
``session`` tries the faults, in ``forks`` or on fresh ``ranks``, ``outcome`` judges and ``report``
prints.
"""
