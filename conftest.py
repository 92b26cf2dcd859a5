"""Makes every pytest run from the repository root a run of the gate."""

pytest_plugins = ("fixtures.gate.plugin",)
