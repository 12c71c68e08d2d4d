#include <moecl/npu_activation.h>

#include "host/npu/c_api.hpp"
#include "host/npu/describe_activation.hpp"

MOECL_C_OPERATOR(moecl_swiglu, SwigluArgs)
MOECL_C_OPERATOR(moecl_dequant_swiglu_quant, DequantSwigluQuantArgs)
MOECL_C_OPERATOR(moecl_c_ascend_dequant_swiglu_quant, CAscendDequantSwigluQuantArgs)
