#!/usr/bin/env python3
"""Writes the C source of the Python binding: all of the C interface, as its headers declare it, and the few functions
of OpenCL that sharing host memory needs.

usage: binding.py OUTPUT.c HEADER.h...
"""
import pathlib
import re
import sys

import cffi

OPENCL = """
typedef struct _cl_context* cl_context;
typedef struct _cl_command_queue* cl_command_queue;
typedef struct _cl_mem* cl_mem;
typedef struct _cl_event* cl_event;
cl_mem clCreateBuffer(cl_context, uint64_t flags, size_t bytes, void* host, int32_t* status);
int32_t clReleaseMemObject(cl_mem);
void* clEnqueueMapBuffer(cl_command_queue, cl_mem, uint32_t blocking, uint64_t flags, size_t offset, size_t bytes,
                         uint32_t waits, void*, void*, int32_t* status);
int32_t clEnqueueReadBuffer(cl_command_queue, cl_mem, uint32_t blocking, size_t offset, size_t bytes, void* to,
                            uint32_t waits, void*, void*);
int32_t clEnqueueUnmapMemObject(cl_command_queue, cl_mem, void* mapped, uint32_t waits, void*, void*);
int32_t clWaitForEvents(uint32_t count, struct _cl_event** events);
int32_t clReleaseEvent(struct _cl_event*);
"""
CALLBACKS = """
extern "Python" void moecl_py_log(void* user, moecl_log_level level, const char* message);
"""


def declarations(header):
    """The declarations of a header as cffi reads them: without comments, preprocessor directives and C++."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
    return re.sub(r"^\s*#[^\n]*", "", text, flags=re.MULTILINE)


def in_order(headers):
    """The headers in an order in which each one follows the headers that it includes."""
    done, left = [], {header.name: header for header in headers}

    def take(name):
        header = left.pop(name, None)
        if header is None:
            return
        for included in re.findall(r"#include <moecl/([a-z_0-9]+\.h)>", header.read_text(encoding="utf-8")):
            take(included)
        done.append(header)

    for header in sorted(headers):
        take(header.name)
    return done


def main():
    output, headers = sys.argv[1], in_order([pathlib.Path(name) for name in sys.argv[2:]])
    builder = cffi.FFI()
    builder.cdef("\n".join(declarations(header) for header in headers) + OPENCL + CALLBACKS)
    includes = "".join(f"#include <moecl/{header.name}>\n" for header in headers)
    builder.set_source("moecl._binding", "#define CL_TARGET_OPENCL_VERSION 120\n#include <CL/cl.h>\n" + includes)
    builder.emit_c_code(output)


if __name__ == "__main__":
    main()
