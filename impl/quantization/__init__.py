"""Quantised weights of the linear layers, one scheme a module behind one interface."""

from impl.quantization.base_config import LinearMethodBase, QuantizationConfig
from impl.quantization.compressed_tensors import (
    CompressedTensorsConfig,
    CompressedTensorsW8A8Fp8,
    CompressedTensorsW8A8Int8,
    CompressedTensorsWNA16,
)
from impl.quantization.fp8 import Fp8Config
from impl.quantization.unquantized import UnquantizedLinearMethod

__all__ = [
    "CompressedTensorsConfig",
    "CompressedTensorsW8A8Fp8",
    "CompressedTensorsW8A8Int8",
    "CompressedTensorsWNA16",
    "Fp8Config",
    "LinearMethodBase",
    "QuantizationConfig",
    "UnquantizedLinearMethod",
]
