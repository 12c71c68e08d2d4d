#pragma once
// The common base of the operands of all operators' cases.
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cases/device_memory.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {

/// The expected value of an element that must not be written.
inline constexpr double untouched = std::numeric_limits<double>::lowest();

/// An operator's output compared with the oracle's.
struct Compared {
  std::string output;  ///< "ids"; empty if it is the only output
  double error = 0, tolerance = 0;
  std::string worst;  ///< the element that is farthest off, or writes around the tensor

  bool ok() const { return error <= tolerance; }
  std::string describe() const;
};

/// Several outputs as one: a wrong output if there is any, else the one that is farthest off.
Compared worst_of(std::string output, const std::vector<Compared>& all);

/// Owns the tensors of a case, and compares their content with what is expected.
class CaseTensors {
 public:
  CaseTensors(StreamView stream, Guards guards) : stream_(stream), guards_(guards) {}
  CaseTensors(const CaseTensors&) = delete;
  CaseTensors& operator=(const CaseTensors&) = delete;

  const StreamView& stream() const { return stream_; }
  /// The elements of one of its tensors. Stops the host.
  std::vector<double> values(const TensorView& view) const;
  /// Errors: invalid_argument  memory around the tensor was written
  std::vector<unsigned char> bytes(const TensorView& view) const;

  TensorView input(DType dtype, std::initializer_list<std::int64_t> shape, const std::vector<double>& values);
  /// The tensor is absent if there are no values.
  TensorView optional_input(DType dtype, std::initializer_list<std::int64_t> shape, const std::vector<double>& values);
  /// The tensor holds poison before each run, or these values.
  TensorView output(DType dtype, std::initializer_list<std::int64_t> shape, const std::vector<double>& values = {});
  BufferView scratch(std::uint64_t size_bytes);
  /// Resets all outputs to their content before a run.
  void renew() const;
  /// What an output holds after a run.
  struct Held {
    std::string what;  ///< "f32[3, 4]"
    std::vector<double> values;
    std::vector<bool> is_poison;  ///< elements that were not written
    std::string damage;           ///< describes writes around it
  };
  /// Its elements, or its bytes as another type. Stops the host.
  Held held(const TensorView& output, std::optional<DType> as = {}) const;
  /// Error: the largest |got - expected| over the largest |expected|, of all elements or of each row of `columns`;
  /// infinite if the guards are damaged.
  static Compared compare(std::string name, const Held& got, const std::vector<double>& expected, double tolerance = 0,
                          std::int64_t columns = 0);
  Compared compare(std::string name, const TensorView& output, const std::vector<double>& expected,
                   double tolerance = 0, std::int64_t columns = 0) const;
  Compared compare(std::string name, const TensorView& output, const std::vector<std::int32_t>& expected) const;
  /// Error: |got - expected| over what is allowed at that element; 1 is the tolerance.
  static Compared within(std::string name, const Held& got, const std::vector<double>& expected,
                         const std::function<double(std::size_t)>& allowed);

 private:
  struct Output {
    DeviceTensor tensor;
    std::vector<unsigned char> before;  ///< empty: poison
  };
  StreamView stream_;
  Guards guards_;
  std::deque<DeviceTensor> inputs_;
  std::deque<Output> outputs_;
  std::deque<Buffer> scratch_;

  const DeviceTensor& tensor_of(const TensorView& view) const;
};

/// A case's operands on a device. A case holds sizes, types and values. Its members say:
///   Args, bring(tensors)              which arguments the operator gets
///   Expected, expected()              what the oracle makes of them
///   enqueue(stream, args, lanes)      how the operator is run
///   compare(tensors, args, expected)  how far each output may be off
///   describe()                        which case it is
template <class Of>
class OperandsOf : public CaseTensors {
  Of case_;

 public:
  OperandsOf(StreamView stream, Of of, Guards guards = Guards::none)
      : CaseTensors(stream, guards), case_(std::move(of)), args(case_.bring(*this)) {}

  typename Of::Args args;
  /// Runs the operator once, and compares each output with the oracle's. Stops the host.
  std::vector<Compared> run(std::int32_t lanes = 0) {
    if (!expected_) expected_ = case_.expected();
    renew();
    case_.enqueue(stream(), args, lanes);
    return case_.compare(*this, args, *expected_);
  }

 private:
  std::optional<typename Of::Expected> expected_;
};

/// The row of x, which has `count` rows, that row `row` of a result is made from: the row of slot index[row], where
/// `divisor` slots share a row; without an index, row `row`. -1: no row, so the result's row is not written.
std::int64_t source_row(std::size_t row, std::int64_t count, const std::vector<std::int32_t>& index,
                        std::int32_t divisor, const ValidRows& rows);
/// The expert of a valid row.
std::size_t expert_of(std::size_t row, const ValidRows& rows);

/// The error that storage as that type adds to a result of f32 arithmetic, relative to the largest result.
double storage_error(DType dtype);

/// Integers as doubles, in which tensors are filled and compared.
template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

}  // namespace moecl::test
