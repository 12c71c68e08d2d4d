#include "bench/baseline.hpp"

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl::bench {

Change change_between(const Measured& before, const Measured& now) {
  const double old_spread = before.seconds.size() > 1 ? before.spread() : now.spread(),
               new_spread = now.seconds.size() > 1 ? now.spread() : before.spread();
  return {now.name, before.median(), now.median(), std::max(0.05, std::max(old_spread, new_spread))};
}

void expect_comparable(const nlohmann::ordered_json& before, const std::string& origin,
                       const nlohmann::ordered_json& facts) {
  const nlohmann::ordered_json then = before.value("context", nlohmann::ordered_json::object());
  const auto fact = [](const nlohmann::ordered_json& of, const char* name) {
    return of.value(name, nlohmann::ordered_json());
  };
  for (const char* name : {"platform", "device"})
    if (fact(then, name) != fact(facts, name))
      fail(ErrorCode::invalid_data, "{}: measured on {} {}, this run on {}", origin, name, fact(then, name).dump(),
           fact(facts, name).dump());
  for (const auto& [of, which] : {std::pair(&then, origin), std::pair(&facts, std::string("this run"))})
    if (fact(*of, "slow_mode") == true)
      fail(ErrorCode::invalid_data, "{}: the machine was in a slow mode, so its times compare with nothing", which);
}

std::vector<Change> compare(const nlohmann::ordered_json& before, const std::string& origin,
                            const nlohmann::ordered_json& now) {
  const std::vector<Measured> old_ones = measured(before, origin), new_ones = measured(now, "this run");
  expect_comparable(before, origin, now.at("context"));
  std::vector<Change> changes;
  for (const Measured& found : new_ones) {
    const auto same =
        std::find_if(old_ones.begin(), old_ones.end(), [&](const Measured& m) { return m.name == found.name; });
    if (same == old_ones.end()) continue;
    changes.push_back(change_between(*same, found));
  }
  if (changes.empty()) fail(ErrorCode::invalid_data, "{}: has none of the benchmarks of this run", origin);
  return changes;
}

}  // namespace moecl::bench
