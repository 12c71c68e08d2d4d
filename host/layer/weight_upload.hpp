#pragma once
// Uploads host matrices to device memory.
#include <moecl/buffer.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/packed_weights.hpp>
#include <moecl/tensor_view.hpp>

#include <array>
#include <deque>
#include <initializer_list>
#include <optional>
#include <vector>

#include "runtime/pinned_memory.hpp"

namespace moecl {

/// Writes host matrices to one staging buffer on the device, from which kernels convert them into their final place.
///
/// The calling thread reads matrices that are in a file, in chunks: it reads the next chunk while the device takes one.
///
/// Async:  writes are enqueued, so host matrices must live until `finish` or the destructor, which stop the host.
/// Errors: io_error  from all calls that read a file
class WeightUpload {
 public:
  enum class Purpose { write, check };
  explicit WeightUpload(StreamView stream, Purpose purpose = Purpose::write) : stream_(stream), purpose_(purpose) {}
  /// Waits, so that nothing reads the host matrices any more, also after a failed load.
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;
  /// Errors: device_error  a write or conversion failed
  void finish();
  StreamView stream() const noexcept { return stream_; }
  /// Purpose::check: nothing is written, but calls fail as they would when writing.
  bool only_checks() const noexcept { return purpose_ == Purpose::check; }

  /// Packs a matrix into rows [first_column, first_column + matrix.rows()) of an expert's N. Plain matrices are
  /// converted, quantized ones are not.
  /// @param source_groups  With packed.group_index: the matrix's own group for each group of `packed`
  void pack(const WeightMatrix& matrix, const PackedWeights& packed, std::int64_t expert, std::int64_t first_column,
            const std::vector<std::int32_t>& source_groups = {});
  /// A plain matrix in the staging buffer, with contiguous rows there. Valid until the next call. The host transposes a
  /// matrix that is stored transposed.
  TensorView rows_of(const HostMatrix& matrix);
  /// If plain matrices are interleaved in one range of host memory: writes the range once, and the calls of `pack` that
  /// follow use it. Otherwise does nothing.
  void stage_together(const std::vector<WeightMatrix>& matrices);
  /// Copies to.size_bytes() bytes on the host at once, and enqueues their write.
  void write(const void* values, TensorView to);
  /// Writes a matrix to a row-major one of the same shape, and converts its type.
  void copy(const HostMatrix& matrix, TensorView to);

  /// Bytes of host matrices so far, as loading reads them from a checkpoint.
  std::uint64_t read_bytes() const noexcept { return read_bytes_; }

 private:
  static constexpr std::uint64_t chunk_bytes = 1 << 20;

  /// Enqueues the write of a host matrix's bytes.
  void send(const HostBytes& bytes, BufferView to);
  /// Reserves the staging buffer for the parts of one matrix, of `bytes` each.
  std::vector<BufferView> reserve(std::initializer_list<std::uint64_t> bytes);
  TensorView stage(const HostMatrix& matrix, BufferView to);
  /// The matrix in the range that `stage_together` wrote; absent if it is not there.
  TensorView find_staged(const HostMatrix& matrix) const;
  BufferView stage(const CodeMatrix& codes, BufferView to);

  StreamView stream_;
  Purpose purpose_;
  bool pending_ = false;
  std::uint64_t read_bytes_ = 0;
  Buffer staging_, iota_;
  HostBytes staged_;  ///< host range that `stage_together` wrote to the beginning of staging_
  std::int64_t staged_bytes_ = 0;
  std::vector<std::int32_t> iota_values_;
  std::deque<std::vector<unsigned char>> written_;  ///< sources of enqueued writes
  std::optional<PinnedMemory> chunks_;              ///< of files, being written
  std::array<Event, 8> taken_;                      ///< of each chunk: the device has taken it
  std::size_t next_chunk_ = 0;
};

/// Errors: invalid_argument  the matrix is not [rows, columns] of f32, f16 or bf16; `what` names it
void expect_matrix(const HostMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns);

}  // namespace moecl
