# What `cmake --install` puts where, and the Debian package that CPack makes of it (`./dev package`).
# Programs find each other and their data relative to themselves, so any prefix will do.
include(GNUInstallDirs)

install(TARGETS laconic laconic-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
get_property(modules GLOBAL PROPERTY LACONIC_MODULES)
if(modules)
  install(TARGETS ${modules} LIBRARY DESTINATION lib/laconic)  # where base/plugin.cpp looks
endif()
install(DIRECTORY presets DESTINATION share/laconic)
install(DIRECTORY studies DESTINATION share/laconic)
install(DIRECTORY examples DESTINATION share/laconic USE_SOURCE_PERMISSIONS)
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN results EXCLUDE PATTERN adr EXCLUDE)

# Manual page and completion, written by the program itself from the tables behind --help.
if(NOT CMAKE_CROSSCOMPILING)
  set(pages ${CMAKE_BINARY_DIR}/pages)
  file(MAKE_DIRECTORY ${pages})
  add_custom_command(
    OUTPUT ${pages}/laconic.1 ${pages}/laconic.bash ${pages}/_laconic ${pages}/laconic.fish
    COMMAND laconic man > ${pages}/laconic.1
    COMMAND laconic completion bash > ${pages}/laconic.bash
    COMMAND laconic completion zsh > ${pages}/_laconic
    COMMAND laconic completion fish > ${pages}/laconic.fish
    DEPENDS laconic VERBATIM)
  add_custom_target(laconic_pages ALL
    DEPENDS ${pages}/laconic.1 ${pages}/laconic.bash ${pages}/_laconic ${pages}/laconic.fish)
  install(FILES ${pages}/laconic.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${pages}/laconic.bash DESTINATION share/bash-completion/completions RENAME laconic)
  # Where zsh looks: in the first under any prefix of its own, in the second on Debian under /usr.
  install(FILES ${pages}/_laconic DESTINATION share/zsh/site-functions)
  install(FILES ${pages}/_laconic DESTINATION share/zsh/vendor-completions)
  install(FILES ${pages}/laconic.fish DESTINATION share/fish/vendor_completions.d)
endif()

# A package may only need what Debian has.
if(NOT LACONIC_TORCH)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME laconic)
  set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
  set(CPACK_PACKAGE_CONTACT "The Laconic authors <laconic@localhost>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains language models on machines joined by slow networks")
  set(CPACK_PACKAGE_DESCRIPTION
      "Trains Transformer language models on machines that are joined by slow networks:\n\
 messages between ranks are shortened, and what that lost is remembered.")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  # Chosen by RPATH among the OpenBLAS that libtorch would take, so no library names it (torch.cmake).
  set(CPACK_DEBIAN_PACKAGE_DEPENDS libopenblas0-openmp)
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS iproute2)
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin, gnuplot-nox, python3-torch")
  include(CPack)
endif()
