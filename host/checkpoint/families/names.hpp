#pragma once
// Names that several families have. Sources of all families here, unless a row names others: the configuration and
// modeling files of each in transformers 5 (fields, defaults, formulas), the left sides of its conversion_mapping.py
// and the released checkpoints (tensor names).
#include "host/checkpoint/model_families.hpp"

namespace moecl::families {

inline constexpr NetworkNames one_by_one{"mlp.experts.{expert}.{matrix}.weight"};
/// As transformers 5 holds them in memory.
inline constexpr NetworkNames stacked{"mlp.experts.{matrix}", {"gate_up_proj", "gate_up_proj", "down_proj"}};
inline constexpr std::array<const char*, 3> w1_w3_w2{"w1", "w3", "w2"};

}  // namespace moecl::families
