# Flags of all targets, and the functions that declare a library, a doctest program and a test script.
add_library(millrace_flags INTERFACE)
target_include_directories(millrace_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(millrace_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Werror>
  # clang builds for ThreadSanitizer. Its -Wall, -Wextra and -Wconversion contain more warnings than GCC's.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion;-Wno-missing-designated-field-initializers;-Wno-deprecated-declarations;-Wno-unused-lambda-capture>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 at -O3 warns of overlaps in std::string that do not exist (GCC bug 105329).
  target_compile_options(millrace_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
target_compile_definitions(millrace_flags INTERFACE
  $<$<BOOL:${MILLRACE_CHECK_FIELDS}>:MILLRACE_CHECK_FIELDS>
  $<$<BOOL:${MILLRACE_TORCH}>:MILLRACE_TORCH>)
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(millrace_flags INTERFACE -fsanitize=${MILLRACE_SANITIZE})
  if(MILLRACE_SANITIZE MATCHES "undefined")
    # The vptr check has two false positives here.
    # - It compares addresses of type information, but the program and a plug-in each have their own for a class.
    # - oneTBB's flow graph casts a task to its type after the task's destructor, to free its memory.
    target_compile_options(millrace_flags INTERFACE -fno-sanitize=vptr)
  endif()
endif()

# millrace_library(NAME SOURCES a.cpp ... [LINK targets])
function(millrace_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(millrace_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(millrace_${name} PUBLIC millrace_flags ${ARG_LINK})
endfunction()

# For a library that does little work itself: at -O0 its sources compile in two thirds of the time under sanitizers.
function(unoptimised_under_sanitizers target)
  if(MILLRACE_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# Gives tests the path of the checkout. tests/source_dir.hpp says why it is a function and not a definition.
add_library(millrace_source_dir OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/source_dir.cpp)
target_link_libraries(millrace_source_dir PRIVATE millrace_flags)
target_compile_definitions(millrace_source_dir
  PRIVATE MILLRACE_SOURCE_ROOT="${PROJECT_SOURCE_DIR}" INTERFACE MILLRACE_SOURCE_DIR=::millrace::source_dir\(\))
target_compile_options(millrace_source_dir INTERFACE "SHELL:-include ${PROJECT_SOURCE_DIR}/tests/source_dir.hpp")

# doctest itself and main(), compiled once for all doctest programs.
add_library(millrace_test_main OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/main.cpp)
target_link_libraries(millrace_test_main PRIVATE millrace_flags PUBLIC doctest::doctest)

# millrace_test(NAME SOURCES tests/x_test.cpp ... LINK targets [HELPERS targets] [LABELS label] [FILES files])
# Declares one doctest program with one ctest entry. The label is `unit` unless LABELS names another.
# HELPERS: targets that the test starts or loads; they are built with it.
# FILES: files or folders.
# With FILES, a test that passed runs again only if the program, a helper, one of FILES or the test data changed.
function(millrace_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;HELPERS;LABELS;FILES" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE millrace_flags millrace_source_dir millrace_test_main ${ARG_LINK})
  # Only the code under test needs to be fast: at -O0 the tests themselves compile sooner.
  if(NOT MILLRACE_SANITIZE STREQUAL "thread")
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(ARG_HELPERS)
    add_dependencies(${name} ${ARG_HELPERS})
  endif()
  if(ARG_FILES)
    list(TRANSFORM ARG_HELPERS REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE helpers)
    list(TRANSFORM ARG_FILES PREPEND --file=)
    list(TRANSFORM helpers PREPEND --file=)
    add_test(NAME ${name} COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/tools/when_changed.py --file=$<TARGET_FILE:${name}> ${helpers} ${ARG_FILES} -- $<TARGET_FILE:${name}>)
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  else()
    set_tests_properties(${name} PROPERTIES LABELS unit)
    add_dependencies(unit_tests ${name})
  endif()
endfunction()

# The doctest programs with the label `unit`: `make unit` builds and runs them.
add_custom_target(unit_tests)

# script_test(NAME SCRIPT path/of/test.py [WATCH globs] [FILES files] [ARGUMENTS ...])
# Declares a test that runs with the python set, and skips without it.
# WATCH: globs of the checkout; FILES: built files.
# With WATCH, a test that passed runs again only if one of these files or the test data changed.
function(script_test name)
  cmake_parse_arguments(ARG "" "SCRIPT" "WATCH;FILES;ARGUMENTS" ${ARGN})
  set(command ${PROJECT_SOURCE_DIR}/tests/apps/with_python_set.sh ${MILLRACE_DEPS_DIR} ${PROJECT_SOURCE_DIR}/${ARG_SCRIPT} ${ARG_ARGUMENTS})
  if(ARG_WATCH)
    list(TRANSFORM ARG_WATCH PREPEND --watch=)
    list(TRANSFORM ARG_FILES PREPEND --file=)
    set(command python3 ${PROJECT_SOURCE_DIR}/tests/tools/when_changed.py --watch=${ARG_SCRIPT} --watch=tests/apps/with_python_set.sh ${ARG_WATCH} ${ARG_FILES} -- ${command})
  endif()
  add_test(NAME ${name} COMMAND ${command})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS python TIMEOUT 900)
endfunction()

# Everything that test scripts start or load: `cmake --build --preset dev --target program_tests`.
add_custom_target(program_tests)
