#include <moecl/npu_distribute.h>

#include "host/npu/c_api.hpp"
#include "host/npu/describe_distribute.hpp"

MOECL_C_COLLECTIVE(moecl_moe_distribute_dispatch, MoeDistributeDispatchArgs)
MOECL_C_COLLECTIVE(moecl_moe_distribute_dispatch_v2, MoeDistributeDispatchV2Args)
MOECL_C_COLLECTIVE(moecl_moe_distribute_combine, MoeDistributeCombineArgs)
MOECL_C_COLLECTIVE(moecl_moe_distribute_combine_v2, MoeDistributeCombineV2Args)
