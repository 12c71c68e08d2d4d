#include <moecl/npu_gating.h>

#include "host/npu/c_api.hpp"
#include "host/npu/describe_gating.hpp"

MOECL_C_OPERATOR(moecl_moe_gating_top_k, MoeGatingTopKArgs)
MOECL_C_OPERATOR(moecl_moe_gating_top_k_softmax, MoeGatingTopKSoftmaxArgs)
MOECL_C_OPERATOR(moecl_moe_gating_top_k_softmax_v2, MoeGatingTopKSoftmaxV2Args)
