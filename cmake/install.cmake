# `cmake --install`: the program, the recipes, the built-in models, the licence (plug-ins are installed where they are built: in io/ and models/).
# LibTorch stays where tools/setup.sh put it; its plug-in finds it there by its RPATH.
include(GNUInstallDirs)

if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/configs FILES_MATCHING PATTERN "*.yaml")
if(EXISTS ${PROJECT_SOURCE_DIR}/models/builtin)
  install(DIRECTORY models/builtin/ DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/models)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/millrace)
