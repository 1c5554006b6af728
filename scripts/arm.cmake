# Compiles for 64-bit Arm with the distribution's cross compiler, against the libraries that scripts/arm.sh unpacks, and runs what was
# compiled under qemu's user-mode emulation (./dev arm). HR_ARM_ROOT: where they are.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(HR_ARM_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm-root)
cmake_path(NORMAL_PATH HR_ARM_ROOT)
set(CMAKE_SYSROOT ${HR_ARM_ROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${HR_ARM_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${HR_ARM_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${HR_ARM_ROOT}/usr/share/pkgconfig)
# The processor that is emulated is QEMU_CPU's choice.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${HR_ARM_ROOT})
