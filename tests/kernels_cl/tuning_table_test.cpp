#include <moecl/error.hpp>
#include <moecl/tuning_table.hpp>

#include <gmock/gmock.h>

namespace moecl::test {
namespace {

using ::testing::HasSubstr;

DeviceCaps device(const std::string& name, const std::string& vendor, DeviceType type) {
  DeviceCaps caps;
  caps.platform_name = "Some Platform", caps.vendor = vendor, caps.name = name, caps.type = type;
  return caps;
}

constexpr const char* table = R"({"entries": [
  {"match": {}, "measured_on": "default", "x": [1]},
  {"match": {"vendor": "Maker"}, "measured_on": "vendor", "x": [1]},
  {"match": {"platform": "Some", "type": "gpu"}, "measured_on": "family", "x": [1]},
  {"match": {"device": "A1"}, "measured_on": "device without numbers", "x": []},
  {"match": {"device": "A1", "vendor": "Maker"}, "measured_on": "device", "x": [1]},
  {"match": {"device": "A1"}, "measured_on": "device again", "x": [1]}]})";

TEST(TuningTableTest, TakesTheClosestEntryAndTheFirstOfEquals) {
  EXPECT_THAT(tuning::find_entry(table, device("A1 PCIe", "Maker", DeviceType::gpu), "x"),
              HasSubstr("\"device\",\"x\""));
  EXPECT_THAT(tuning::find_entry(table, device("A1", "Other", DeviceType::gpu), "x"), HasSubstr("device again"));
  EXPECT_THAT(tuning::find_entry(table, device("B2", "Maker", DeviceType::gpu), "x"), HasSubstr("\"family\""));
  EXPECT_THAT(tuning::find_entry(table, device("B2", "Maker", DeviceType::cpu), "x"), HasSubstr("\"vendor\",\"x\""));
  EXPECT_THAT(tuning::find_entry(table, device("B2", "Other", DeviceType::cpu), "x"), HasSubstr("\"default\""));
  EXPECT_EQ(tuning::find_entry(R"({"entries": []})", device("A1", "Maker", DeviceType::gpu), "x"), "");
}

TEST(TuningTableTest, ReplacesTheEntryOfTheSameMatch) {
  const std::string changed =
      tuning::with_entry(table, R"({"match": {"vendor": "Maker"}, "measured_on": "anew", "x": [2]})");
  EXPECT_THAT(tuning::find_entry(changed, device("B2", "Maker", DeviceType::cpu), "x"), HasSubstr("anew"));
  EXPECT_THAT(changed, ::testing::Not(HasSubstr("\"vendor\",\n")));
  EXPECT_THAT(tuning::find_entry(changed, device("B2", "Other", DeviceType::cpu), "x"), HasSubstr("\"default\""));
}

TEST(TuningTableTest, SaysWhatIsWrong) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"entries": [{}]})", R"({"entries": [{"match": 1, "measured_on": "x"}]})",
        R"({"entries": [{"match": {}, "measured_on": "x"}]})"}) {
    try {
      tuning::find_entry(text, device("A1", "Maker", DeviceType::gpu), "x");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_data) << text;
    }
  }
}

}  // namespace
}  // namespace moecl::test
