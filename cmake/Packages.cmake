# Debian packages: `moed` (moed, moed-http, their units) and `moed-tools` (moectl, moed-pack, moed-plan). The target `debian_packages`
# writes both to the build directory's folder `packages`.
set(MOED_PACKAGE_CONTACT "The moed authors <maintainers@moed.invalid>" CACHE STRING "Maintainer of the Debian packages")
set(MOED_DAEMONS moed moed-http)
set(MOED_TOOLS moectl moed-pack moed-plan)

# Manual pages say what the programs themselves say with --help.
find_program(MOED_PAGES_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
set(MANUAL_PAGES ${PROJECT_BINARY_DIR}/manual_pages)
set(PAGES_STAMP ${PROJECT_BINARY_DIR}/manual_pages.stamp)
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " EMULATOR)
set(PAGES_COMMANDS)
foreach(package DAEMONS TOOLS)
  set(programs)
  foreach(program ${MOED_${package}})
    list(APPEND programs $<TARGET_FILE:${program}>)
  endforeach()
  list(APPEND PAGES_COMMANDS COMMAND ${MOED_PAGES_PYTHON} ${PROJECT_SOURCE_DIR}/tools/manual_pages.py "--emulator=${EMULATOR}"
    ${MANUAL_PAGES}/${package} ${programs})
endforeach()
add_custom_command(OUTPUT ${PAGES_STAMP}
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${MANUAL_PAGES} ${PAGES_COMMANDS} COMMAND ${CMAKE_COMMAND} -E touch ${PAGES_STAMP}
  DEPENDS ${MOED_DAEMONS} ${MOED_TOOLS} ${PROJECT_SOURCE_DIR}/tools/manual_pages.py COMMENT "Writing manual pages" VERBATIM)

# What only packages hold: `cmake --install` puts programs alone where it is told to.
function(moed_packaged component destination)
  install(FILES ${ARGN} DESTINATION ${destination} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
set(DEBIAN ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CHANGELOG ${PROJECT_BINARY_DIR}/changelog)
string(TIMESTAMP CHANGED "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${DEBIAN}/changelog.in ${CHANGELOG} @ONLY)
add_custom_command(OUTPUT ${CHANGELOG}.gz COMMAND gzip -9nkf ${CHANGELOG} DEPENDS ${CHANGELOG} VERBATIM)
foreach(pair "daemon:DAEMONS:moed" "tools:TOOLS:moed-tools")
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 pages)
  list(GET pair 2 package)
  moed_packaged(${component} share/doc/${package} ${DEBIAN}/copyright ${CHANGELOG}.gz)
  install(DIRECTORY ${MANUAL_PAGES}/${pages}/ DESTINATION share/man/man1 COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
moed_packaged(daemon /lib/systemd/system ${PROJECT_SOURCE_DIR}/deploy/systemd/moed.service
  ${PROJECT_SOURCE_DIR}/deploy/systemd/moed-http.service)
moed_packaged(daemon /etc/moed ${DEBIAN}/moed.env ${DEBIAN}/moed-http.env)
install(FILES ${DEBIAN}/logrotate.conf DESTINATION /etc/logrotate.d RENAME moed COMPONENT daemon EXCLUDE_FROM_ALL)
foreach(kind sysusers tmpfiles)
  install(FILES ${DEBIAN}/${kind}.conf DESTINATION lib/${kind}.d RENAME moed.conf COMPONENT daemon EXCLUDE_FROM_ALL)
endforeach()
moed_packaged(daemon share/doc/moed ${PROJECT_SOURCE_DIR}/README.md)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/proto DESTINATION share/doc/moed COMPONENT daemon EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN "*.md" PATTERN "*.proto" PATTERN "google" EXCLUDE)

set(CPACK_GENERATOR DEB)
set(CPACK_OUTPUT_FILE_PREFIX packages)
set(CPACK_STRIP_FILES ON)
if(CMAKE_CROSSCOMPILING)
  set(CPACK_STRIP_FILES OFF)  # by the host's strip, which does not know them: the linker has done it
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)  # the only other one (aarch64-linux-gnu.cmake)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu)
endif()
set(CPACK_PACKAGE_NAME moed)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${MOED_PACKAGE_CONTACT})
set(CPACK_COMPONENTS_ALL daemon tools)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Names and least versions of the libraries' packages, from their symbols.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME moed)
set(CPACK_DEBIAN_DAEMON_DESCRIPTION "daemon for Mixture-of-Experts models larger than memory
moed serves Mixture-of-Experts language models over gRPC. What every token
needs stays in memory; experts are read from storage through one cache within
a fixed budget. moed-http answers OpenAI's and Anthropic's APIs in front of it.")
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS "moed-tools (= ${PROJECT_VERSION}), init-system-helpers (>= 1.54), \
systemd | systemd-standalone-sysusers | systemd-sysusers, systemd | systemd-standalone-tmpfiles | systemd-tmpfiles")
set(CPACK_DEBIAN_DAEMON_PACKAGE_SUGGESTS logrotate)
set(CONFFILES ${PROJECT_BINARY_DIR}/conffiles)
file(WRITE ${CONFFILES} "/etc/moed/moed.env\n/etc/moed/moed-http.env\n/etc/logrotate.d/moed\n")
set(SCRIPTS)
foreach(script postinst prerm postrm)
  configure_file(${DEBIAN}/moed.${script} ${PROJECT_BINARY_DIR}/debian/${script} COPYONLY)
  list(APPEND SCRIPTS ${PROJECT_BINARY_DIR}/debian/${script})
endforeach()
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA ${CONFFILES} ${SCRIPTS})
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME moed-tools)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "client and packer of moed
moectl talks to a moed: generation, conversations, statistics, load. moed-pack
makes stores of checkpoints, and moed-plan the files that some presets plan
offline.")
include(CPack)

# CPack with Ninja builds nothing: it takes what is built. Tests pack what is there.
if(MOED_BUILD_TESTS AND NOT MOED_SANITIZE)
  set(PACK_ALWAYS ALL)
endif()
add_custom_target(package_contents ${PACK_ALWAYS} DEPENDS ${PAGES_STAMP} ${CHANGELOG}.gz)
# Without it CPack would write packages that depend on nothing.
find_program(MOED_SHLIBDEPS dpkg-shlibdeps)
set(LACKS_SHLIBDEPS)
if(NOT MOED_SHLIBDEPS)
  set(LACKS_SHLIBDEPS COMMAND ${CMAKE_COMMAND} -E echo "dpkg-shlibdeps is not there: bash tools/packages.sh build" COMMAND ${CMAKE_COMMAND} -E false)
endif()
add_custom_target(debian_packages
  ${LACKS_SHLIBDEPS}
  COMMAND ${CMAKE_COMMAND} -E rm -rf packages
  COMMAND ${CMAKE_CPACK_COMMAND} -G DEB
  DEPENDS package_contents WORKING_DIRECTORY ${PROJECT_BINARY_DIR} COMMENT "Packing Debian packages" VERBATIM)
