# `cmake --install` copies the program, the recipes, the built-in models, the exporters and the licence.
# io/, models/ and stages/ install their plug-ins themselves.
# LibTorch stays in the folder of tools/setup.sh; the plug-in has that folder as its RPATH.
include(GNUInstallDirs)

if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/configs FILES_MATCHING PATTERN "*.yaml")
if(EXISTS ${PROJECT_SOURCE_DIR}/models/builtin)
  install(DIRECTORY models/builtin/ DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/models)
endif()
# `millrace model` runs the exporters. The other Python files there make seeded models for tests.
install(DIRECTORY models/export/ DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/export FILES_MATCHING PATTERN "*.py"
  PATTERN "*_seeded.py" EXCLUDE PATTERN small_sam.py EXCLUDE PATTERN halve.py EXCLUDE PATTERN __pycache__ EXCLUDE)
# Installs the Python set for them, and MONAI for its bundles.
install(PROGRAMS tools/setup.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/tools)
install(FILES tools/pins/core.txt tools/pins/python.txt tools/pins/formats.txt DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/tools/pins)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/millrace)
