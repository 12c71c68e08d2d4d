// For the headers <op>_args.h, which C++ and OpenCL C read alike. A struct has long, int and float, the widest first,
// so that it has no gaps. An odd number of ints ends in `int pad`, since rusticl 22.3 refuses a struct with padding at
// its end. KERNEL_ARGS says its bytes on both sides.
#ifdef __cplusplus
#define KERNEL_ARGS(type, bytes) static_assert(sizeof(type) == (bytes))
static_assert(sizeof(long) == 8);
#else
#define KERNEL_ARGS(type, bytes) typedef char type##_has_##bytes##_bytes[sizeof(type) == (bytes) ? 1 : -1]
#endif
