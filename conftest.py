"""Makes every pytest run from the repository root a run of the gate."""

import torch

pytest_plugins = ("gate.plugin",)

# Workers and ranks share the cores already, and products this small only wait for threads.
torch.set_num_threads(1)
