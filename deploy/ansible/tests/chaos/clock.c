/* The wall clock of what is started with this preloaded, as many seconds off as the file SPRINGTIDE_TEST_CLOCK gives.
 *
 * A namespace has its own time since boot, but no wall clock of its own: a host whose clock is wrong is made here. The file
 * is read at each call, so that a clock can be set under a process that runs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void)
{
    char text[32] = "";
    const char *path = getenv("SPRINGTIDE_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (file < 0)
        return 0;
    if (read(file, text, sizeof(text) - 1) < 0)
        text[0] = '\0';
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = syscall(SYS_clock_gettime, clock, now);

    if (!failed && clock == CLOCK_REALTIME)
        now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec exact;

    clock_gettime(CLOCK_REALTIME, &exact);
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}
