# Finds every library that is not ours. Each is one imported target.
if(NOT MILLRACE_DEPS_DIR)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/setup.sh where OUTPUT_VARIABLE MILLRACE_DEPS_DIR
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()

find_package(Threads REQUIRED)
if(MILLRACE_SANITIZE STREQUAL "thread")
  # Without an instrumented oneTBB, ThreadSanitizer does not see its synchronisation and reports races that do not exist.
  find_package(TBB REQUIRED PATHS ${MILLRACE_DEPS_DIR}/tsan-tbb NO_DEFAULT_PATH)
else()
  find_package(TBB REQUIRED)
endif()
find_package(OpenCV REQUIRED COMPONENTS core imgproc)
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(doctest REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(JPEG REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
find_package(TIFF REQUIRED)
find_package(pugixml REQUIRED)
find_path(NIFTI_INCLUDE nifti1_io.h PATH_SUFFIXES nifti REQUIRED)
find_library(NIFTI_LIBRARY niftiio REQUIRED)
find_library(ZNZ_LIBRARY znz REQUIRED)
# Not find_package(GDCM): that of Debian needs packages of GDCM that we do not use.
find_path(GDCM_INCLUDE gdcmReader.h PATH_SUFFIXES gdcm-3.0 REQUIRED)
find_library(GDCM_CODECS gdcmMSFF REQUIRED)
find_library(GDCM_DATA gdcmDSED REQUIRED)
find_library(GDCM_COMMON gdcmCommon REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SPNG REQUIRED IMPORTED_TARGET spng)
pkg_check_modules(OPENSLIDE REQUIRED IMPORTED_TARGET openslide)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

if(MILLRACE_TORCH)
  # find_package(Torch) of this wheel fails without a CUDA toolkit, so we import only its CPU libraries.
  set(torch_dir ${MILLRACE_DEPS_DIR}/core/lib/python3.11/site-packages/torch)
  if(NOT EXISTS ${torch_dir}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "LibTorch is not in ${torch_dir}: run tools/setup.sh or 'make build'")
  endif()
  add_library(torch_cpu INTERFACE IMPORTED)
  target_include_directories(torch_cpu SYSTEM INTERFACE ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include)
  target_link_libraries(torch_cpu INTERFACE ${torch_dir}/lib/libtorch_cpu.so ${torch_dir}/lib/libc10.so)
endif()

# dygraphs draws the charts of report.html. It is built into the program.
find_file(MILLRACE_DYGRAPHS dygraph.min.js PATHS /usr/share/javascript/dygraphs REQUIRED)
find_file(MILLRACE_DYGRAPHS_LICENCE copyright PATHS /usr/share/doc/libjs-dygraphs REQUIRED)

# Headers only: a profiler brings the library.
add_library(nvtx INTERFACE IMPORTED)
target_include_directories(nvtx SYSTEM INTERFACE ${MILLRACE_DEPS_DIR}/core/lib/python3.11/site-packages/nvidia/cu13/include)

if(MILLRACE_TCMALLOC AND NOT MILLRACE_SANITIZE)
  pkg_check_modules(TCMALLOC REQUIRED IMPORTED_TARGET libtcmalloc_minimal)
endif()
