#include "runtime/child_process.hpp"

#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds patience{20000};

std::string shell(const std::string& script, milliseconds deadline = patience) {
  return output_of("/bin/sh", {"-c", script}, deadline);
}

TEST(ChildProcess, GivesWhatTheProgramSays) {
  EXPECT_EQ(shell("echo one; echo two words"), "one\ntwo words\n");
  EXPECT_EQ(output_of("/bin/sh", {"-c", "printf '%s|' \"$@\"", "sh", "a b", "", "c"}, patience), "a b||c|");
  EXPECT_EQ(shell("seq 1 100000").size(), 588895u);  // more than a pipe holds
}

TEST(ChildProcess, SaysHowItEnded) {
  const auto ending = [](const std::string& script, milliseconds deadline = patience) {
    const Error error = error_of([&] { shell(script, deadline); });
    EXPECT_EQ(error.code(), deadline == patience ? ErrorCode::device_error : ErrorCode::deadline_exceeded);
    return std::string(error.what());
  };
  EXPECT_THAT(ending("echo half; kill -SEGV $$"), HasSubstr("/bin/sh: was ended by signal 11"));
  EXPECT_THAT(ending("exit 3"), HasSubstr("failed with status 3"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(ending("exec sleep 100", milliseconds(100)), HasSubstr("took longer than 100 ms"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(20000));
  EXPECT_THAT(error_of([] { output_of("/no/such/program", {}, patience); }).what(),
              HasSubstr("/no/such/program: cannot be started: No such file"));
}

TEST(ChildProcess, HelperStandsBesideTheLibrary) {
  const std::string helper = helper_program();
  EXPECT_THAT(helper, testing::EndsWith("/moecl_helpers/helper"));
  EXPECT_EQ(output_of(helper, {"probe"}, patience), "") << "asked about no device, it says nothing";
}

}  // namespace
}  // namespace moecl::test
