#include <moecl/npu_routing.h>

#include "host/npu/c_api.hpp"
#include "host/npu/describe_routing.hpp"

MOECL_C_OPERATOR(moecl_moe_init_routing, MoeInitRoutingArgs)
MOECL_C_OPERATOR(moecl_moe_init_routing_v2, MoeInitRoutingV2Args)
MOECL_C_OPERATOR(moecl_moe_compute_expert_tokens, MoeComputeExpertTokensArgs)
MOECL_C_OPERATOR(moecl_moe_token_permute, MoeTokenPermuteArgs)
MOECL_C_OPERATOR(moecl_moe_token_unpermute, MoeTokenUnpermuteArgs)
MOECL_C_OPERATOR(moecl_moe_re_routing, MoeReRoutingArgs)
MOECL_C_OPERATOR(moecl_moe_finalize_routing, MoeFinalizeRoutingArgs)
