#include "runtime/nv_sm90a.hpp"

#include <moecl/error.hpp>

#include <gtest/gtest.h>

namespace moecl {
namespace {

TEST(NvSm90aTest, TurnsMarkedInstructionsIntoCode) {
  EXPECT_TRUE(nv_sm90a::is_meant_by(nv_sm90a::probe().source->text));
  EXPECT_FALSE(nv_sm90a::is_meant_by("asm(\"wgmma.fence;\"); // A90"));
  const std::string driver =
      ".version 9.0\n.target sm_90, texmode_independent\n.entry f(\n)\n.reqntid 384, 1, 1\n{\n//A90 wgmma.fence;\n"
      "  //A90 wgmma.commit_group;\n// a comment\n}\n";
  const std::string expected =
      ".version 9.0\n.target sm_90a, texmode_independent\n.entry f(\n)\n.reqntid 384, 1, 1\n.minnctapersm 1\n{\n"
      "wgmma.fence;\n  wgmma.commit_group;\n// a comment\n}\n";
  EXPECT_EQ(nv_sm90a::assemble(driver + std::string(3, '\0')), expected);
}

TEST(NvSm90aTest, RefusesWhatIsNoPtxForSm90) {
  for (const std::string& program : {std::string(),
                                     std::string("\x7f"
                                                 "ELF"),
                                     std::string(".target sm_80\n"), std::string(".target sm_90\n\0x", 16)})
    EXPECT_THROW(nv_sm90a::assemble(program), Error) << program;
}

}  // namespace
}  // namespace moecl
