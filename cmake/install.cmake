# `cmake --install` copies the program, the recipes, the built-in models and the licence.
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
# Exporters and compiler, and the script that installs the Python set for them.
install(DIRECTORY models/export DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/models FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
install(PROGRAMS tools/setup.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/tools)
install(FILES tools/pins/core.txt tools/pins/python.txt DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/tools/pins)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/millrace)
