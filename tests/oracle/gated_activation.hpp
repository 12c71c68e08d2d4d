#pragma once
#include <moecl/gated_activation.hpp>

#include <vector>

namespace moecl::test::oracle {

/// One row: x has 2I (gated) or I entries, the result I.
std::vector<double> gated_activation(const std::vector<double>& x, const Activation& activation);
/// Rows of `width` columns, one after the other.
std::vector<double> gated_rows(const std::vector<double>& x, std::size_t width, const Activation& activation);

}  // namespace moecl::test::oracle
