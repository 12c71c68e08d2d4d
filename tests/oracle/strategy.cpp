#include "tests/oracle/strategy.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

#include "tests/cases/device_memory.hpp"
#include "tests/oracle/physical_experts.hpp"

namespace moecl::test::oracle {
namespace {

double f32(double value) { return static_cast<float>(value); }
/// The size of share `index` of `total`. The first shares take the remainder.
std::int64_t share(std::int64_t total, std::int64_t shares, std::int64_t index) {
  return total / shares + (index < total % shares ? 1 : 0);
}
std::int64_t begin_of(std::int64_t total, std::int64_t shares, std::int64_t index) {
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < index; ++i) begin += share(total, shares, i);
  return begin;
}

struct Draw {
  std::mt19937_64 random;
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }
};

/// Half a step of int8 codes for values up to `amax`; the second is for a quotient that was first rounded to f16.
double half_step(double amax) { return amax / 254 * (1 + 1e-4); }
double half_step_through_f16(double amax) { return amax / 127 * (0.5 + 1.0 / 32); }
/// The largest relative error of rounding to the type.
double unit_of(DType dtype) { return dtype == DType::bf16 ? std::ldexp(1.0, -8) : std::ldexp(1.0, -24); }

}  // namespace

double expert(double x, std::int64_t e) { return f32(x * static_cast<double>(e + 1) + static_cast<double>(e)); }

StrategyProblem::StrategyProblem(std::uint64_t seed) {
  Draw in{std::mt19937_64(seed)};
  ranks = static_cast<std::int32_t>(seed % 8 + 1);
  do tp = static_cast<std::int32_t>(in(1, ranks));
  while (ranks % tp != 0);
  do ranks_per_node = static_cast<std::int32_t>(in(1, ranks));
  while (ranks % ranks_per_node != 0);
  if (in(0, 1) == 0) ranks_per_node = ranks;
  experts = static_cast<std::int32_t>(in(1, 20));  // often fewer than ranks, mostly uneven
  top_k = static_cast<std::int32_t>(in(1, std::min(experts, 6)));
  constexpr WireFormat wires[] = {WireFormat::none, WireFormat::int8, WireFormat::fp8, WireFormat::mxfp8};
  wire = wires[std::max<std::int64_t>(in(-2, 3), 0)];
  hidden = wire == WireFormat::int8 ? 8 * in(1, 5) : in(1, 40);
  dtype = in(0, 2) == 0 ? DType::bf16 : DType::f32;
  const std::int64_t most = in(0, 4) == 0 ? 0 : 12;
  for (std::int32_t d = 0; d < ranks / tp; ++d) tokens.push_back(in(0, 3) == 0 ? 0 : in(0, most));
  choose_experts(seed + 1000);
  place_experts(seed + 2000);
  expert_output = static_cast<ExpertOutput>(Draw{std::mt19937_64(seed + 3000)}(0, 2));
  // Positive values do not cancel: sums in any order differ by roundings only.
  std::uniform_real_distribution<double> value(0.5, 1.5);
  for (std::int64_t i = 0; i < total() * hidden; ++i) x.push_back(value(in.random));
  for (std::int64_t i = 0; i < total() * top_k; ++i) weights.push_back(f32(value(in.random)));
  x = rounded(dtype, x);
  std::ostringstream words;
  for (const std::int64_t count : tokens) words << count << " ";
  words << "tokens, tp " << tp << ", " << ranks << " ranks in nodes of " << ranks_per_node << ", " << experts << " + "
        << placing.redundant << " experts " << moecl::name(placing.wanted) << ", top " << top_k << ", hidden " << hidden
        << ", " << moecl::name(dtype) << ", wire " << moecl::name(wire) << ", experts give "
        << moecl::name(expert_output) << ", seed " << seed;
  text = words.str();
}

void StrategyProblem::choose_experts(std::uint64_t seed) {
  Draw in{std::mt19937_64(seed)};
  const std::int64_t skew = in(0, 3), chosen = in(0, experts - 1), avoided = in(0, ranks - 1);
  const std::int64_t avoided_begin = begin_of(experts, ranks, avoided),
                     avoided_end = avoided_begin + share(experts, ranks, avoided);
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t t = 0; t < total(); ++t) {
    std::shuffle(order.begin(), order.end(), in.random);
    for (std::int64_t k = 0; k < top_k; ++k) {
      std::int32_t e = order[static_cast<std::size_t>(k)];
      if (skew == 1) e = k == 0 ? static_cast<std::int32_t>(chosen) : -1;  // all tokens to one expert
      if (skew == 2 && e >= avoided_begin && e < avoided_end) e = -1;      // none to one rank
      if (skew == 3 && in(0, 2) == 0) e = -1;                              // no expert here and there
      ids.push_back(e);
    }
  }
}

void StrategyProblem::place_experts(std::uint64_t seed) {
  Draw in{std::mt19937_64(seed)};
  placing = {experts, ranks, 2, 0, ExpertPlacement::linear};
  const std::int64_t choice = in(0, 2);
  if (choice == 1) placing.redundant = (ranks - experts % ranks) % ranks + ranks * static_cast<std::int32_t>(in(0, 2));
  if (choice == 2 && ranks > 1) placing.wanted = ExpertPlacement::round_robin;
  std::vector<std::vector<std::int32_t>> places_of(static_cast<std::size_t>(experts));
  for (std::int32_t p = 0; p < experts + placing.redundant; ++p) {
    std::int64_t e = p < experts ? p : (p - experts) % experts;
    if (placing.wanted == ExpertPlacement::round_robin)
      e = owner(p) + (p - begin_of(experts, ranks, owner(p))) * ranks;  // the owner's next expert
    places_of[static_cast<std::size_t>(e)].push_back(p);
    expert_at.push_back(static_cast<std::int32_t>(e));
  }
  physical = physical_experts(ids, top_k, places_of, 0);
}

std::int32_t StrategyProblem::owner(std::int64_t place) const {
  const std::int64_t all = experts + placing.redundant;
  std::int32_t rank = 0;
  while (place >= begin_of(all, ranks, rank) + share(all, ranks, rank)) ++rank;
  return rank;
}

std::int64_t StrategyProblem::own_tokens(std::int32_t rank) const {
  return share(tokens[static_cast<std::size_t>(rank / tp)], tp, rank % tp);
}
std::int64_t StrategyProblem::first_own_token(std::int32_t rank) const {
  return first_token(rank / tp) + begin_of(tokens[static_cast<std::size_t>(rank / tp)], tp, rank % tp);
}
double StrategyProblem::wire_error(std::int64_t token, std::int64_t h) const {
  if (wire == WireFormat::none) return 0;
  const std::int64_t group = wire == WireFormat::mxfp8 ? 32 : hidden, first = h / group * group;
  double amax = 0;
  for (std::int64_t i = first; i < std::min(first + group, hidden); ++i) amax = std::max(amax, std::abs(at(token, i)));
  if (wire == WireFormat::int8) return half_step(amax);
  // e4m3 has four significant bits down to 2^-6, and ends at 448. mx_floor's scale is 2^-8 times amax rounded down to a
  // power of two, so the largest quotients may be beyond 448.
  const double scale = wire == WireFormat::fp8 ? amax / 448 : std::ldexp(1.0, std::ilogb(amax) - 8);
  const double value = std::abs(at(token, h));
  return std::max({value / 16, scale * std::ldexp(1.0, -10), value - 448 * scale}) * (1 + 1e-6);
}

StrategyProblem::Rows StrategyProblem::dispatched(StrategyKind kind, std::int32_t rank) const {
  std::vector<std::int32_t> sources;
  const std::int32_t width = over_nodes(kind) ? ranks_per_node : ranks;
  for (std::int32_t index = 0; index < width; ++index)
    for (std::int32_t source = index; source < ranks; source += width) sources.push_back(source);
  Rows rows;
  const std::int64_t first = begin_of(places(), ranks, rank);
  for (std::int64_t p = first; p < first + share(places(), ranks, rank); ++p) {
    for (const std::int32_t source : sources)
      for (std::int64_t t = first_own_token(source); t < first_own_token(source) + own_tokens(source); ++t)
        for (std::int64_t k = 0; k < top_k; ++k)
          if (place(t, k) == p) {
            rows.x.insert(rows.x.end(), x.begin() + t * hidden, x.begin() + (t + 1) * hidden);
            for (std::int64_t h = 0; h < hidden; ++h) rows.error.push_back(wire_error(t, h));
            rows.experts.push_back(expert_at[static_cast<std::size_t>(p)]);
            rows.weights.push_back(weights[static_cast<std::size_t>(t * top_k + k)]);
          }
    rows.ends.push_back(static_cast<double>(rows.experts.size()));
  }
  if (rows.ends.empty()) rows.ends.push_back(0);  // a rank without experts has an empty one
  return rows;
}

std::vector<double> StrategyProblem::output(std::int32_t dp_rank, bool in_f32) const {
  const auto step = [&](double value) { return in_f32 ? f32(value) : value; };
  std::vector<double> out;
  const std::int64_t first = first_token(dp_rank);
  for (std::int64_t t = first; t < first + tokens[static_cast<std::size_t>(dp_rank)]; ++t)
    for (std::int64_t h = 0; h < hidden; ++h) {
      double sum = 0;
      for (std::int64_t k = 0; k < top_k; ++k)
        if (id(t, k) >= 0)
          sum = step(sum + step(weights[static_cast<std::size_t>(t * top_k + k)] * expert(at(t, h), id(t, k))));
      out.push_back(sum);
    }
  return out;
}

std::vector<double> StrategyProblem::output_error(StrategyKind kind, std::int32_t dp_rank) const {
  const bool codes_home = wire == WireFormat::int8 && kind == StrategyKind::mc2;
  const bool weighted = over_nodes(kind) || experts_weight();  // values are sent weighted
  // Each part of the sum travels home by itself: that of an expert, of a rank whose experts sum, or of a node.
  const auto part_of = [&](std::int64_t t, std::int64_t k) -> std::int64_t {
    if (over_nodes(kind)) return owner(place(t, k)) / ranks_per_node;
    return experts_sum() ? owner(place(t, k)) : k;
  };
  std::vector<double> error;
  const std::int64_t first = first_token(dp_rank);
  for (std::int64_t t = first; t < first + tokens[static_cast<std::size_t>(dp_rank)]; ++t) {
    const std::int64_t parts = over_nodes(kind) ? ranks / ranks_per_node : experts_sum() ? ranks : top_k;
    std::vector<double> off(static_cast<std::size_t>(hidden)), all(static_cast<std::size_t>(hidden));
    for (std::int64_t part = 0; part < parts; ++part) {
      // Upper bounds of the part's values as they are sent, and the factor by which home multiplies them.
      std::vector<double> sent(static_cast<std::size_t>(hidden));
      double factor = 1;
      for (std::int64_t k = 0; k < top_k; ++k) {
        if (id(t, k) < 0 || part_of(t, k) != part) continue;
        const double weight = weights[static_cast<std::size_t>(t * top_k + k)];
        if (!weighted) factor = weight;
        for (std::int64_t h = 0; h < hidden; ++h) {
          const auto i = static_cast<std::size_t>(h);
          const double moved = wire_error(t, h) * static_cast<double>(id(t, k) + 1);
          off[i] += weight * moved;
          sent[i] += (weighted ? weight : 1) * (expert(at(t, h), id(t, k)) + moved);
        }
      }
      for (std::int64_t h = 0; h < hidden; ++h) {
        const auto i = static_cast<std::size_t>(h);
        all[i] += factor * sent[i];
        if (codes_home) {  // codes of 8 columns; the scale and its product are rounded to the tokens' type
          const auto group = sent.begin() + h / 8 * 8;
          off[i] +=
              factor * (half_step_through_f16(*std::max_element(group, group + 8)) + 2 * unit_of(dtype) * sent[i]);
        } else if (over_nodes(kind)) {
          off[i] += unit_of(dtype) * sent[i];
        }
      }
    }
    for (std::size_t i = 0; i < off.size(); ++i) error.push_back(off[i] * (1 + 1e-3) + 1e-6 * all[i]);
  }
  return error;
}

std::int64_t StrategyProblem::row_bytes() const {
  if (wire == WireFormat::none) return hidden * static_cast<std::int64_t>(size_bytes(dtype));
  return wire == WireFormat::mxfp8 ? hidden + (hidden + 31) / 32 : hidden + 4;
}
/// Bytes of a row on mc2's way home: f32, or codes with scales of the tokens' type.
std::int64_t StrategyProblem::home_row_bytes() const {
  return wire == WireFormat::int8 ? hidden + hidden / 8 * static_cast<std::int64_t>(size_bytes(dtype)) : hidden * 4;
}

/// Bytes of the tp group's outputs; `from_other_nodes`: only those from other nodes.
std::int64_t StrategyProblem::gathered_outputs(std::int32_t rank, bool from_other_nodes) const {
  std::int64_t bytes = 0;
  for (std::int32_t peer = rank / tp * tp; peer < rank / tp * tp + tp; ++peer)
    if (peer != rank && (!from_other_nodes || peer / ranks_per_node != rank / ranks_per_node))
      bytes += own_tokens(peer) * hidden * 4;
  return bytes;
}

std::int64_t StrategyProblem::flat_mc2(std::int32_t rank, bool from_other_nodes) const {
  std::int64_t tokens_of_others = 0, others = 0;
  for (std::int32_t peer = 0; peer < ranks; ++peer)
    if (peer != rank && (!from_other_nodes || peer / ranks_per_node != rank / ranks_per_node))
      tokens_of_others += own_tokens(peer), ++others;
  const bool sums = sums_home(wire);
  return tokens_of_others * mc2_there(sums) + others * own_tokens(rank) * mc2_back(sums, home_row_bytes()) +
         gathered_outputs(rank, from_other_nodes);
}

StrategyProblem::Bytes StrategyProblem::received_over_nodes(std::int32_t rank) const {
  const std::int32_t each = ranks_per_node, nodes = ranks / each, index = rank % each;
  const auto relayed = [&](std::int32_t of) {
    std::int64_t sum = 0;
    for (std::int32_t n = 0; n < nodes; ++n) sum += own_tokens(n * each + of);
    return sum;
  };
  std::int64_t of_neighbours = 0;
  for (std::int32_t i = 0; i < each; ++i)
    if (i != index) of_neighbours += relayed(i);
  const std::int64_t partial =
      wire == WireFormat::int8 ? home_row_bytes() : hidden * static_cast<std::int64_t>(size_bytes(dtype));
  Bytes bytes;
  bytes.between_nodes =
      (relayed(index) - own_tokens(rank)) * (row_bytes() + top_k * 8) + (nodes - 1) * own_tokens(rank) * partial;
  const bool sums = sums_home(WireFormat::none);  // within a node, results are not quantized
  bytes.all = bytes.between_nodes + of_neighbours * mc2_there(sums) +
              (each - 1) * relayed(index) * mc2_back(sums, hidden * 4) + gathered_outputs(rank, false);
  bytes.between_nodes += gathered_outputs(rank, true);
  return bytes;
}

StrategyProblem::Bytes StrategyProblem::received(StrategyKind kind, std::int32_t rank, bool reduced) const {
  Bytes bytes = received_whole(kind, rank);
  if (reduced) return bytes;
  // Without reduction, no sums travel within the tp group.
  const std::int64_t sum_row = hidden * 4, groups = ranks / tp;
  bytes.between_nodes -= gathered_outputs(rank, true);
  if (kind == StrategyKind::multicast) {
    const std::int64_t of_all = share(total(), ranks, rank), of_groups = share(total(), groups, rank / tp);
    bytes.all -= (ranks - 1) * of_all * sum_row + (total() - of_all) * sum_row;
    bytes.all += (groups - 1) * of_groups * sum_row + (total() - of_groups) * sum_row;
    return bytes;
  }
  bytes.all -= gathered_outputs(rank, false);
  if (kind == StrategyKind::all_gather) bytes.all -= (tp - 1) * own_tokens(rank) * sum_row;
  return bytes;
}

StrategyProblem::Bytes StrategyProblem::received_whole(StrategyKind kind, std::int32_t rank) const {
  const std::int64_t sum_row = hidden * 4, mine = own_tokens(rank),
                     of_group = tokens[static_cast<std::size_t>(rank / tp)];
  const std::int64_t others_in_group = gathered_outputs(rank, false), counts = (ranks - 1) * places() * 4;
  if (over_nodes(kind)) return received_over_nodes(rank);
  Bytes bytes;
  if (kind == StrategyKind::mc2) {
    bytes.all = flat_mc2(rank, false);
    bytes.between_nodes = flat_mc2(rank, true);
  } else if (kind == StrategyKind::all2all_v) {
    std::int64_t arriving = 0, returning = 0;
    for (std::int32_t source = 0; source < ranks; ++source)
      for (std::int64_t t = first_own_token(source); t < first_own_token(source) + own_tokens(source); ++t)
        for (std::int64_t k = 0; k < top_k; ++k) {
          if (place(t, k) < 0) continue;
          const std::int32_t target = owner(place(t, k));
          arriving += target == rank && source != rank ? 1 : 0;
          returning += target != rank && source == rank ? 1 : 0;
        }
    bytes.all = counts + arriving * (row_bytes() + (experts_weight() ? 4 : 0)) + returning * sum_row + others_in_group;
  } else {
    bytes.all = (total() - of_group) * (row_bytes() + top_k * 8);
    if (kind == StrategyKind::all_gather) {
      bytes.all += (ranks / tp - 1) * of_group * sum_row + (tp - 1) * mine * sum_row + others_in_group;
    } else {
      const std::int64_t reduced = share(total(), ranks, rank);
      bytes.all += (ranks - 1) * reduced * sum_row + (total() - reduced) * sum_row;
    }
  }
  return bytes;
}

}  // namespace moecl::test::oracle
