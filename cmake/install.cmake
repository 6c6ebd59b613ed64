# `cmake --install`: the program, the recipes, the built-in models, the licence (the plugin for rare picture formats is installed in io/).
# LibTorch stays where tools/setup.sh put it; the program finds it there by its RPATH.
include(GNUInstallDirs)

if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(MILLRACE_TORCH)
    set_target_properties(millrace PROPERTIES INSTALL_RPATH ${torch_dir}/lib)
  endif()
endif()
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/configs FILES_MATCHING PATTERN "*.yaml")
if(EXISTS ${PROJECT_SOURCE_DIR}/models/builtin)
  install(DIRECTORY models/builtin/ DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/models)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/millrace)
