// A stand-in for NVRTC that has a version, MAJOR.MINOR, and compiles nothing.
int nvrtcVersion(int *major, int *minor) { *major = MAJOR; *minor = MINOR; return 0; }
const char *nvrtcGetErrorString(int code) { (void)code; return "no compiler"; }
#define FAILS(name) int name(void) { return 1; }
FAILS(nvrtcGetNumSupportedArchs) FAILS(nvrtcGetSupportedArchs) FAILS(nvrtcCreateProgram) FAILS(nvrtcDestroyProgram)
FAILS(nvrtcCompileProgram) FAILS(nvrtcGetCUBINSize) FAILS(nvrtcGetCUBIN) FAILS(nvrtcGetPTXSize) FAILS(nvrtcGetPTX)
FAILS(nvrtcGetProgramLogSize) FAILS(nvrtcGetProgramLog)
