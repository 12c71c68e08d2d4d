#pragma once
#include <moecl/gated_activation.hpp>

#include <vector>

namespace moecl::test::oracle {

/// One row: x has 2I (gated) or I entries, the result I.
std::vector<double> gated_activation(const std::vector<double>& x, const Activation& activation);

}  // namespace moecl::test::oracle
