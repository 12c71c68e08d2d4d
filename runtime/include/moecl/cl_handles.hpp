#pragma once
// OpenCL's opaque handle types, declared as CL/cl.h declares them, so that public headers need not include it.
// <moecl/opencl.hpp> is the header that includes CL/cl.h; there `_cl_mem*` is `cl_mem`, and so on.
struct _cl_platform_id;
struct _cl_device_id;
struct _cl_context;
struct _cl_command_queue;
struct _cl_mem;
struct _cl_event;
struct _cl_kernel;
struct _cl_program;
