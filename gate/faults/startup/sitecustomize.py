"""Python imports this first in every process that a seeded one starts."""

from gate.faults.seeding import seed_from_parent

seed_from_parent()
