# What `cmake --install BUILD --prefix PREFIX` (./dev install PREFIX) puts below the prefix: the program, the libraries that were built
# (HR_INSTALLED), shared and static, with headers, a pkg-config file each and one CMake package, the manual page and completions. Nothing
# that is installed says where: prefixes may be moved. The manifest, by which ./dev uninstall removes it all, is scripts/manifest.cmake's.
include(CMakePackageConfigHelpers)
set(HR_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/headroom)
set(HR_PC_FOLDER ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(HR_SHARE_FOLDER ${CMAKE_INSTALL_DATADIR}/headroom)
set(HR_GENERATED ${CMAKE_BINARY_DIR}/generated)

# What a library needs where it is linked as an archive, for pkg-config. What a module asks of who compiles comes to everybody by
# Requires.private, also to who links the shared library, and utf8proc's -DUTF8PROC_EXPORTS is nobody's but its own: it is named as a library,
# without the place where it was here: another machine has its own.
list(TRANSFORM UTF8PROC_LIBRARIES PREPEND -l OUTPUT_VARIABLE HR_UTF8PROC)
string(REPLACE ";" " " HR_UTF8PROC "${HR_UTF8PROC}")
set(HR_MODULES_headroom_lib "jansson libpcre2-8 libzstd zlib")
set(HR_MODULES_headroom_mem "jansson zlib")
set(HR_MODULES_headroom_text "jansson libpcre2-8")
set(HR_MODULES_headroom_plan "jansson")
set(HR_SYSTEM_headroom_lib "${HR_UTF8PROC} -lm -pthread")
set(HR_SYSTEM_headroom_mem "-lm")
set(HR_SYSTEM_headroom_text "${HR_UTF8PROC} -lm -pthread")
set(HR_SYSTEM_headroom_plan "-lm")
set(HR_ABOUT_headroom_lib "training of transformer language models inside a stated memory budget")
set(HR_ABOUT_headroom_mem "PyTorch's caching allocator as bookkeeping, memory snapshots, out-of-memory errors explained")
set(HR_ABOUT_headroom_text "tokenizers and chat templates of language models")
set(HR_ABOUT_headroom_plan "plans of training jobs, to the byte")

# hr_install_library(TARGET): its archive and its shared library, headroom-NAME.pc, and Headroom::NAME, Headroom::NAME-static.
function(hr_install_library target)
  get_target_property(output ${target} OUTPUT_NAME)
  string(REGEX REPLACE "^headroom-" "" name ${output})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name}-static)
  install(TARGETS ${target} EXPORT headroom-static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(TARGET ${target}_shared)
    set_target_properties(${target}_shared PROPERTIES EXPORT_NAME ${name})
    install(TARGETS ${target}_shared EXPORT headroom-shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
  file(RELATIVE_PATH up "/${HR_PC_FOLDER}" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  file(CONFIGURE OUTPUT ${HR_GENERATED}/${output}.pc @ONLY CONTENT "prefix=\${pcfiledir}/@up@
libdir=\${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: @output@
Description: ${HR_ABOUT_${target}}
Version: @PROJECT_VERSION@
Cflags: -I\${includedir}
Libs: -L\${libdir} -l@output@
Requires.private: ${HR_MODULES_${target}}
Libs.private: ${HR_SYSTEM_${target}}
")
  install(FILES ${HR_GENERATED}/${output}.pc DESTINATION ${HR_PC_FOLDER})
endfunction()

# hr_install_text(FILE FOLDER ARGUMENTS...): what the program prints about itself, made when it was linked.
function(hr_install_text file folder)
  add_custom_command(OUTPUT ${HR_GENERATED}/texts/${file} COMMAND headroom ${ARGN} > ${HR_GENERATED}/texts/${file} DEPENDS headroom VERBATIM)
  install(FILES ${HR_GENERATED}/texts/${file} DESTINATION ${folder})
  set(HR_TEXTS ${HR_TEXTS} ${HR_GENERATED}/texts/${file} PARENT_SCOPE)
endfunction()

install(CODE "set(HR_MANIFEST \"${HR_SHARE_FOLDER}/manifest.txt\")")
install(CODE "set(HR_FOLDERS ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_INCLUDEDIR}/headroom ${HR_CMAKE_FOLDER} ${HR_PC_FOLDER}
    lib/headroom ${HR_SHARE_FOLDER} ${CMAKE_INSTALL_DOCDIR} ${CMAKE_INSTALL_MANDIR}/man1 ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    ${CMAKE_INSTALL_DATADIR}/zsh/site-functions ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)")
install(CODE "set(HR_STAGE begin)\ninclude(\"${PROJECT_SOURCE_DIR}/scripts/manifest.cmake\")")

foreach(target ${HR_INSTALLED})
  hr_install_library(${target})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/headroom DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# The kernels for GPUs, where ./dev build cuda has made them; the program looks for them there (backend/cuda/open.c).
install(FILES ${PROJECT_SOURCE_DIR}/build/cuda/libheadroom-cuda.so DESTINATION lib/headroom OPTIONAL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(HR_SHARED)
  install(EXPORT headroom-shared NAMESPACE Headroom:: DESTINATION ${HR_CMAKE_FOLDER})
endif()
install(EXPORT headroom-static NAMESPACE Headroom:: DESTINATION ${HR_CMAKE_FOLDER})
write_basic_package_version_file(${HR_GENERATED}/headroom-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/scripts/headroom-config.cmake ${HR_GENERATED}/headroom-config-version.cmake DESTINATION ${HR_CMAKE_FOLDER})

if(TARGET headroom)
  install(TARGETS headroom RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  file(MAKE_DIRECTORY ${HR_GENERATED}/texts)
  set(HR_TEXTS "")
  hr_install_text(headroom.1 ${CMAKE_INSTALL_MANDIR}/man1 help --man)
  hr_install_text(headroom ${CMAKE_INSTALL_DATADIR}/bash-completion/completions help --completion bash)
  hr_install_text(_headroom ${CMAKE_INSTALL_DATADIR}/zsh/site-functions help --completion zsh)
  hr_install_text(headroom.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d help --completion fish)
  add_custom_target(headroom_texts ALL DEPENDS ${HR_TEXTS})
endif()

install(CODE "set(HR_STAGE end)\ninclude(\"${PROJECT_SOURCE_DIR}/scripts/manifest.cmake\")")
