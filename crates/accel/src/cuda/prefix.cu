// What kernels in OpenCL C need to be CUDA C++ for NVRTC. Functions are the device's by the option
// --device-as-default-execution-space; source.rs translates words that cannot be macros here.
typedef unsigned char uchar;
typedef unsigned int uint;
typedef unsigned long ulong;
// Within __attribute__, as __launch_bounds__ is.
#define reqd_work_group_size(x, y, z) launch_bounds(x)
#define get_group_id(dimension) blockIdx.x
#define get_local_id(dimension) threadIdx.x
// Orders all accesses of the work-items of a work-group before what they do after it, so that a release
// by one of them covers the results of all.
#define barrier(fences) __syncthreads()
#define atomic_uint uint
#define atomic_load_explicit(word, order, scope) cuda_acquire(word)
#define atomic_store_explicit(word, value, order, scope) cuda_release(word, value)

uint cuda_acquire(const volatile uint *word)
{
    uint value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

void cuda_release(volatile uint *word, uint value)
{
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

uchar4 vload4(ulong at, const uchar *from)
{
    from += 4 * at;
    return make_uchar4(from[0], from[1], from[2], from[3]);
}

uint4 vload4(ulong at, const uint *from)
{
    from += 4 * at;
    return make_uint4(from[0], from[1], from[2], from[3]);
}

void vstore4(uchar4 bytes, ulong at, uchar *to)
{
    to += 4 * at;
    to[0] = bytes.x, to[1] = bytes.y, to[2] = bytes.z, to[3] = bytes.w;
}

uint4 operator^(uint4 a, uint4 b) { return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w); }
uint4 &operator^=(uint4 &a, uint4 b) { return a = a ^ b; }
uint rotate(uint word, uint bits) { return __funnelshift_l(word, word, bits); }
uint bitselect(uint a, uint b, uint mask) { return (a & ~mask) | (b & mask); }

