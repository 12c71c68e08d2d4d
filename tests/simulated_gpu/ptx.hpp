#pragma once
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Parses PTX programs into a form that a Warp can run. Covers the PTX that compilers of OpenCL C write.
/// Source: PTX ISA 8.6
namespace simulated_gpu {

class Warp;
struct Instruction;

/// What a warp does after an instruction.
enum class Flow {
  next,
  jump,   ///< the active lanes go to the instruction's target
  wait,   ///< the active lanes repeat the instruction once other lanes have gone on
  yield,  ///< as `next`, once other lanes and warps have had a turn
  exit,
};
using Execute = Flow (*)(Warp&, const Instruction&);

/// A program, or a launch of it, did something that the hardware does not allow.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Special {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  smid
};

struct Operand {
  enum class Kind {
    lanes32,   ///< a register of up to 32 bits; `value` is its first word in the warp's registers
    lanes64,   ///< the same, of 64 bits
    constant,  ///< `value`: an immediate, or the address of a variable
    special,   ///< `value`: a Special
    local,     ///< `value`: an offset in each lane's local memory
    parts,     ///< a vector, or an address: a base, an offset of `value` bytes, and a box's coordinates
  };
  Kind kind = Kind::constant;
  std::uint64_t value = 0;
  std::vector<Operand> parts;
  bool is_predicate = false;
};

struct Instruction {
  Execute execute = nullptr;
  std::vector<Operand> operands;  ///< the result first
  std::int64_t guard = -1;        ///< first word of its predicate register, or -1
  bool guard_is_negated = false;
  int target = 0;
  std::string text;
};

struct Parameter {
  std::size_t offset, size;
  enum class Kind { value, global, shared } kind;
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0, shared_bytes = 0, local_bytes = 0, register_words = 0;
  std::uint32_t required_items = 0;  ///< 0: any
  std::vector<Instruction> code;
};

struct Module {
  explicit Module(std::string_view ptx);

  std::map<std::string, std::vector<std::uint8_t>, std::less<>> variables;  ///< global and constant ones
  std::map<std::string, Entry, std::less<>> entries;
};

/// Finds the instruction of a mnemonic. Qualifiers for memory ordering and caching are ignored.
/// @throws Fault  no instruction has that name
Execute find_instruction(std::string_view mnemonic);

}  // namespace simulated_gpu
