// A fake libcuda with the functions that moecl loads. It has no devices, and cuInit returns FAKE_CUDA_INIT.
#include <cstdlib>

extern "C" {
int cuInit(unsigned) {
  const char* const result = std::getenv("FAKE_CUDA_INIT");
  return result != nullptr ? std::atoi(result) : 0;
}
int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_OF_A_FAKE";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}
void cuDeviceGet() {}
void cuDeviceGetUuid_v2() {}
void cuDeviceCanAccessPeer() {}
void cuMemGetAllocationGranularity() {}
void cuMemCreate() {}
void cuMemExportToShareableHandle() {}
void cuMemRelease() {}
}
