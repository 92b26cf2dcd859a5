"""Query replication for MLA decode context parallelism, in vLLM's names and shapes.

Torch alone is needed. Every module mirrors one of vLLM's: ``linear``, ``mla_attention``,
``parallel_state``, ``envs``, ``config``; ``layout`` holds the arithmetic of ranks and
tokens, ``merge`` the combination of partial attention, ``backends`` the decode kernels.
"""
