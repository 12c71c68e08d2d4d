// Processes of MPI.
#include "dispatch/transports/transport.hpp"

namespace moecl {
namespace {

class Mpi final : public Transport {
 public:
  TransportKind kind() const noexcept override { return TransportKind::mpi; }
  std::string reject(StreamView /*from*/, StreamView /*to*/) const override {
    return "needs ranks that are processes of MPI: RankGroup::from_mpi";
  }
  double probe(StreamView /*from*/, StreamView /*to*/) const override { return 0; }
  bool between_processes() const noexcept override { return true; }
};

}  // namespace

std::unique_ptr<const Transport> make_mpi() { return std::make_unique<Mpi>(); }

}  // namespace moecl
