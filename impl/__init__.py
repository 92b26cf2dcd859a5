"""Query replication for MLA decode context parallelism, in vLLM's names and shapes.

Torch alone is needed. Every module mirrors one of vLLM's: ``linear``, ``mla_attention``,
``parallel_state``, ``envs``, ``config``; ``layout`` holds the arithmetic of ranks and
tokens, ``merge`` the combination of partial attention, ``backends`` the decode kernels.
``plugin`` alone is about a vLLM that is installed, and puts mendings into its classes.

It differs from vLLM where that has a reason outside this feature: ``MLAAttention`` takes the
kernel's class for ``attn_backend``, as there is no registry of backends; the merges take no
Triton context; ``envs.VLLM_DCP_Q_REPLICATE`` is the variable's name, and ``dcp_q_replicate()``
reads it, because unset is told from off.
"""

__version__ = "0.1.0"
