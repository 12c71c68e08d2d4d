#include <moecl/npu_quant.h>

#include "host/npu/c_api.hpp"
#include "host/npu/describe_quant.hpp"

MOECL_C_OPERATOR(moecl_dynamic_quant, DynamicQuantArgs)
MOECL_C_OPERATOR(moecl_dynamic_quant_asymmetric, DynamicQuantAsymmetricArgs)
MOECL_C_OPERATOR(moecl_dynamic_mx_quant, DynamicMxQuantArgs)
