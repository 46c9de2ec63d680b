// SPDX-License-Identifier: Apache-2.0
// The loads of docs/fidelity.md, each for some seconds: `loads NAME SECONDS`.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double end_time;
static double clock_s(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
static double now(void) { return clock_s(CLOCK_MONOTONIC); }

// Uses this much CPU time, however long that takes.
static void burn(double seconds)
{
	double until = clock_s(CLOCK_THREAD_CPUTIME_ID) + seconds;
	while (clock_s(CLOCK_THREAD_CPUTIME_ID) < until)
		for (volatile int i = 0; i < 100; i++)
			;
}

static int start(const char *name, int cpu, int nice_value)
{
	int pid = fork();
	if (pid)
		return 0;
	prctl(PR_SET_NAME, name);
	if (cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		sched_setaffinity(0, sizeof set, &set);
	}
	if (nice_value && nice(nice_value) == -1)
		_exit(1);
	return 1;
}

static void hog(const char *name, int cpu, int nice_value)
{
	if (!start(name, cpu, nice_value))
		return;
	while (now() < end_time)
		for (volatile int i = 0; i < 20000; i++)
			;
	_exit(0);
}

static void periodic(const char *name, int cpu, double run, long period_us)
{
	if (!start(name, cpu, 0))
		return;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	while (now() < end_time) {
		burn(run);
		t.tv_nsec += period_us * 1000;
		while (t.tv_nsec >= 1000000000) {
			t.tv_nsec -= 1000000000;
			t.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
	}
	_exit(0);
}

static void ping_pong(int ping_cpu, int pong_cpu, double work, int pause_us)
{
	int a[2], b[2];
	char c = 'x';
	if (pipe(a) || pipe(b))
		exit(1);
	if (start("pong", pong_cpu, 0)) {
		close(a[1]);
		close(b[0]);
		while (read(a[0], &c, 1) == 1) {
			if (work > 0)
				burn(work);
			if (write(b[1], &c, 1) != 1)
				break;
		}
		_exit(0);
	}
	if (start("ping", ping_cpu, 0)) {
		close(a[0]);
		close(b[1]);
		while (now() < end_time) {
			if (work > 0)
				burn(work);
			if (write(a[1], &c, 1) != 1 || read(b[0], &c, 1) != 1)
				break;
			if (pause_us)
				usleep(pause_us);
		}
		_exit(0);
	}
	close(a[0]);
	close(a[1]);
	close(b[0]);
	close(b[1]);
}

static int run(const char *load)
{
#define IS(name) (!strcmp(load, name))
	if (IS("periodic-hogs-pinned")) {
		hog("hog1", 0, 0), hog("hog2", 0, 0), periodic("periodic", 0, 0.001, 10000);
	} else if (IS("periodic-hogs")) {
		hog("hog1", -1, 0), hog("hog2", -1, 0), periodic("periodic", -1, 0.001, 10000);
	} else if (IS("hogs-nice-pinned")) {
		hog("hog1", 0, 0), hog("hog2", 0, 0), hog("hog5", 0, 5);
	} else if (IS("hogs-nice")) {
		hog("hog1", -1, 0), hog("hog2", -1, 0), hog("hog5", -1, 5);
	} else if (IS("ping-pong-same")) {
		ping_pong(0, 0, 0, 0);
	} else if (IS("ping-pong-across")) {
		ping_pong(0, 1, 0, 0);
	} else if (IS("ping-pong")) {
		ping_pong(-1, -1, 0, 0);
	} else if (IS("ping-pong-work")) {
		ping_pong(-1, -1, 20e-6, 0);
	} else if (IS("periodics")) {
		periodic("fast", -1, 0.0002, 1000), periodic("slow", -1, 0.004, 16000);
		periodic("third", -1, 0.002, 7000);
	} else if (IS("mixed")) {
		hog("hog1", -1, 0), hog("hog2", -1, 0), periodic("periodic", -1, 0.001, 10000);
		ping_pong(-1, -1, 0.0002, 2000);
	} else {
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	end_time = now() + atof(argv[2]);
	if (run(argv[1]))
		return fprintf(stderr, "no load of this name: %s\n", argv[1]), 2;
	while (wait(0) > 0)
		;
	return 0;
}
