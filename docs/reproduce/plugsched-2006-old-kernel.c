// SPDX-License-Identifier: Apache-2.0
// hackbench and the wake-up benchmark of plugsched-2006 for kernels of its time, as the only process of a machine: built
// statically it is the initramfs's /init. What to do comes from the kernel's command line, as the tables say in
// plugsched-2006.md: bench=hackbench, wakeup or costs, groups=, loops=, samples=, period_us=, rt=1, thread=1, seed=, what the
// programs do besides calls, in instructions: begin= of a worker, message= at each write and read, run= after a broadcast,
// and touch=, KiB that a worker writes to.
//
//   musl-gcc -O2 -static -o init docs/reproduce/plugsched-2006-old-kernel.c -lm
//   mkdir dev; mknod dev/console c 5 1; find init dev | cpio -o -H newc | gzip > initrd
//   qemu-system-x86_64 -M pc -nodefaults -display none -serial stdio -no-reboot -m 256 -accel tcg -icount shift=4,sleep=off
//       -kernel bzImage -initrd initrd -append "quiet console=ttyS0 acpi=off noapic bench=wakeup groups=10 seed=1"
//
// An instruction then takes 16 ns. Times are the processor's time stamp, which counts ns there.
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ENDS 20 // senders, and receivers, of a group
#define BYTES 100
#define SAMPLES_MAX 100000
#define CALLS 2000 // timed
#define FEW 300
#define FUTEX_WAIT 0 // linux/futex.h, which libraries for such kernels lack
#define FUTEX_WAKE 1

static int groups = 30, loops = 100, samples = 1000, period_us = 33000, rt, thread, seed;
static int begin_work, message_work, run_work, touch_kib;
static unsigned long long times[SAMPLES_MAX];
static int broadcasts, answers; // so many of each
static unsigned long long broadcast_at;

static char *touched;

static unsigned long long now(void)
{
	unsigned int low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (unsigned long long)high << 32 | low;
}

static void work(int instructions)
{
	unsigned int turns = instructions / 2;

	if (turns)
		__asm__ volatile("1: dec %0; jnz 1b" : "+r"(turns));
}

static void end(const char *why)
{
	puts(why);
	fflush(stdout);
	sleep(1);
	reboot(RB_AUTOBOOT);
}

static void check(int is_good, const char *what)
{
	if (!is_good) {
		perror(what);
		end("failed");
	}
}

static void tell_ready(int ready, int go)
{
	struct pollfd poll_go = { .fd = go, .events = POLLIN };

	work(begin_work);
	for (int i = 0; i < touch_kib; i += 4)
		touched[i * 1024] = 1;
	check(write(ready, "", 1) == 1, "ready");
	check(poll(&poll_go, 1, -1) == 1, "poll");
}

static void receive(int from, int count)
{
	char message[BYTES];

	while (count--)
		for (int done = 0; done < BYTES;) {
			int got = read(from, message + done, BYTES - done);
			check(got > 0, "read");
			done += got;
			work(message_work);
		}
}

static void send_all(const int *to)
{
	char message[BYTES] = { 0 };

	for (int loop = 0; loop < loops; loop++)
		for (int i = 0; i < ENDS; i++) {
			work(message_work);
			check(write(to[i], message, BYTES) == BYTES, "write");
		}
}

static void fork_group(int ready, int go)
{
	int to[ENDS], ends[2];

	for (int i = 0; i < ENDS; i++) {
		check(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
		pid_t child = fork();
		check(child >= 0, "fork");
		if (!child) {
			close(ends[1]);
			tell_ready(ready, go);
			receive(ends[0], ENDS * loops);
			_exit(0);
		}
		to[i] = ends[1];
		close(ends[0]);
	}
	for (int i = 0; i < ENDS; i++) {
		pid_t child = fork();
		check(child >= 0, "fork");
		if (!child) {
			tell_ready(ready, go);
			send_all(to);
			_exit(0);
		}
	}
	for (int i = 0; i < ENDS; i++)
		close(to[i]);
}

// One round; the byte that lets workers go stays where it is, as in the programs of 2006. ns from it to the last worker's end.
static unsigned long long hackbench(int ready[2], int go[2])
{
	int workers = groups * 2 * ENDS, status;
	char byte;

	for (int i = 0; i < groups; i++)
		fork_group(ready[1], go[0]);
	for (int i = 0; i < workers; i++)
		check(read(ready[0], &byte, 1) == 1, "read ready");
	unsigned long long start = now();
	check(write(go[1], "", 1) == 1, "go");
	for (int i = 0; i < workers; i++)
		check(wait(&status) > 0, "wait");
	return now() - start;
}

static long switches(void)
{
	static char text[8192];
	int file = open("/proc/stat", O_RDONLY);

	check(read(file, text, sizeof(text) - 1) > 0 && strstr(text, "ctxt "), "/proc/stat");
	close(file);
	return atol(strstr(text, "ctxt ") + 5);
}

static void *load(void *once)
{
	int ready[2], go[2];

	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, ready) && !socketpair(AF_UNIX, SOCK_STREAM, 0, go), "socketpair");
	do {
		long before = switches();
		unsigned long long took = hackbench(ready, go);
		if (once)
			printf("hackbench %d: %.3f s, %ld switches with the forks\n", groups, took / 1e9, switches() - before);
	} while (!once);
	return NULL;
}

static void futex(int *word, int operation, int value)
{
	syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static int look(int *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void tell(int *word, int value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
	futex(word, FUTEX_WAKE, INT_MAX);
}

static void *woken(void *unused)
{
	for (int i = 0; i < samples; i++) {
		while (look(&broadcasts) == i)
			futex(&broadcasts, FUTEX_WAIT, i);
		times[i] = now() - broadcast_at;
		work(run_work);
		tell(&answers, i + 1);
	}
	return unused;
}

static void *waker(void *unused)
{
	struct timespec next, time;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (int i = 0; i < samples; i++) {
		for (int seen; (seen = look(&answers)) != i;)
			futex(&answers, FUTEX_WAIT, seen);
		clock_gettime(CLOCK_MONOTONIC, &time);
		do {
			next.tv_nsec += period_us * 1000L;
			next.tv_sec += next.tv_nsec / 1000000000;
			next.tv_nsec %= 1000000000;
		} while (next.tv_sec < time.tv_sec || (next.tv_sec == time.tv_sec && next.tv_nsec <= time.tv_nsec));
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL))
			;
		broadcast_at = now();
		tell(&broadcasts, i + 1);
	}
	return unused;
}

static pthread_t start(void *(*body)(void *), int priority)
{
	struct sched_param parameter = { .sched_priority = priority };
	pthread_t made;

	check(!pthread_create(&made, NULL, body, NULL), "pthread_create");
	if (priority)
		check(!pthread_setschedparam(made, SCHED_FIFO, &parameter), "pthread_setschedparam");
	return made;
}

// Mean, least, largest and deviation in us of those that are not above `limit`; returns mean + 6 deviations.
static double table(const char *name, double limit)
{
	double sum = 0, squares = 0, least = INFINITY, largest = 0;
	int count = 0;

	for (int i = 0; i < samples; i++) {
		double time = times[i] / 1e3;
		if (time > limit)
			continue;
		count++;
		sum += time;
		squares += time * time;
		least = fmin(least, time);
		largest = fmax(largest, time);
	}
	double mean = sum / count, deviation = sqrt(squares / count - mean * mean);
	printf("%-8s %5d of %d: mean %.2f min %.2f max %.2f deviation %.2f us\n", name, count, samples, mean, least, largest,
	       deviation);
	return mean + 6 * deviation;
}

static int compare(const void *a, const void *b)
{
	unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;

	return (x > y) - (x < y);
}

static void told(const char *what, unsigned long long *taken, int count)
{
	qsort(taken, count, sizeof(*taken), compare);
	printf("%-40s %8llu ns, 5 %% %llu, 95 %% %llu\n", what, taken[count / 2], taken[count / 20], taken[count * 19 / 20]);
}

static void message(const char *writing, const char *reading, int to, int from)
{
	static unsigned long long second[CALLS];
	char message[BYTES] = { 0 };

	for (int i = 0; i < CALLS; i++) {
		unsigned long long start = now();
		check(write(to, message, BYTES) == BYTES, writing);
		unsigned long long between = now();
		check(read(from, message, BYTES) == BYTES, reading);
		second[i] = now() - between;
		times[i] = between - start;
	}
	told(writing, times, CALLS);
	told(reading, second, CALLS);
}

static void calls(void)
{
	int ends[2];

	for (int i = 0; i < CALLS; i++) {
		unsigned long long start = now();
		times[i] = now() - start;
	}
	told("reading the clock", times, CALLS);
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	message("write to a socket", "read from a socket", ends[0], ends[1]);
	check(!pipe(ends), "pipe");
	message("write to a pipe", "read from a pipe", ends[1], ends[0]);
}

// Like LMbench's lat_syscall, lat_pipe and lat_unix: a byte of a device, a byte there and back between two processes.
static void device(const char *what, int major_minor, int is_read)
{
	char byte = 0;

	check(!mknod("/device", S_IFCHR | 0666, major_minor), "mknod");
	int file = open("/device", O_RDWR);
	check(file >= 0, what);
	for (int i = 0; i < CALLS; i++) {
		unsigned long long start = now();
		check((is_read ? read(file, &byte, 1) : write(file, &byte, 1)) == 1, what);
		times[i] = now() - start;
	}
	told(what, times, CALLS);
	close(file);
	unlink("/device");
}

static void there_and_back(const char *what, int to[2], int from[2])
{
	char byte = 0;
	pid_t child = fork();

	check(child >= 0, "fork");
	if (!child) {
		close(to[1]);
		while (read(to[0], &byte, 1) == 1)
			check(write(from[1], &byte, 1) == 1, "write back");
		_exit(0);
	}
	for (int i = 0; i < CALLS; i++) {
		unsigned long long start = now();
		check(write(to[1], &byte, 1) == 1 && read(from[0], &byte, 1) == 1, what);
		times[i] = now() - start;
	}
	told(what, times, CALLS);
	close(to[1]);
	wait(NULL);
}

static void latencies(void)
{
	int to[2], from[2];

	device("read of /dev/zero", 1 << 8 | 5, 1);
	device("write to /dev/null", 1 << 8 | 3, 0);
	check(!pipe(to) && !pipe(from), "pipe");
	there_and_back("a byte there and back by pipes", to, from);
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, to) && !socketpair(AF_UNIX, SOCK_STREAM, 0, from), "socketpair");
	there_and_back("a byte there and back by sockets", to, from);
}

static void yields(int *shared)
{
	for (int two = 0; two < 2; two++) {
		pid_t child = two ? fork() : 1;
		if (!child) {
			while (!look(shared))
				sched_yield();
			_exit(0);
		}
		for (int i = 0; i < CALLS; i++) {
			unsigned long long start = now();
			sched_yield();
			times[i] = now() - start;
		}
		told(two ? "two yields and two switches" : "yield of one alone", times, CALLS);
	}
	tell(shared, 1);
	wait(NULL);
}

static void set_fifo(int priority)
{
	struct sched_param parameter = { .sched_priority = priority };

	check(!pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &parameter), "pthread_setschedparam");
}

// Of nobody, and of one who is ordinary and does not preempt, and has time to wait again.
static void wakeups(int *shared)
{
	for (int i = 0; i < CALLS; i++) {
		unsigned long long start = now();
		futex(shared, FUTEX_WAKE, 1);
		times[i] = now() - start;
	}
	told("futex without waiters", times, CALLS);
	if (!fork()) {
		while (look(shared) == 1)
			futex(shared, FUTEX_WAIT, 1);
		_exit(0);
	}
	usleep(20000);
	set_fifo(50);
	for (int i = 0; i < FEW; i++) {
		unsigned long long start = now();
		futex(shared, FUTEX_WAKE, 1);
		times[i] = now() - start;
		usleep(3000);
	}
	told("futex that wakes one", times, FEW);
	set_fifo(0);
	tell(shared, 2);
	wait(NULL);
}

static void ticks(void)
{
	int count = 0;

	set_fifo(50);
	for (unsigned long long last = now(), until = last + 2000000000, at; last < until && count < SAMPLES_MAX; last = at) {
		at = now();
		if (at - last > 2000)
			times[count++] = at - last;
	}
	set_fifo(0);
	told("tick", times, count);
}

// The child runs first; the parent is back from its fork when the child has ended. To tell when it began costs a page fault.
static void processes(unsigned long long *begun)
{
	static unsigned long long ended[FEW];

	for (int i = 0; i < FEW; i++) {
		unsigned long long start = now();
		if (!fork())
			_exit(0);
		wait(NULL);
		times[i] = now() - start;
	}
	told("process from fork to wait", times, FEW);
	for (int i = 0; i < FEW; i++) {
		unsigned long long start = now();
		if (!fork()) {
			*begun = now();
			_exit(0);
		}
		wait(NULL);
		ended[i] = now() - *begun;
		times[i] = *begun - start;
	}
	told("from a fork to what the child tells", times, FEW);
	told("from there to its parent's wait", ended, FEW);
}

// What calls, switches, wake-ups, ticks and processes take by themselves; a reading of the clock is in each.
static void costs(void)
{
	int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(shared != MAP_FAILED, "mmap");
	calls();
	latencies();
	yields(shared);
	wakeups(shared);
	ticks();
	processes((unsigned long long *)shared);
}

// Of `name=value` on the kernel's command line; whatever else ends in that name is another. None is negative.
static int parameter(const char *line, const char *name, int otherwise)
{
	for (const char *at = line; (at = strstr(at, name)); at++)
		if (at == line || at[-1] == ' ') {
			int value = atoi(at + strlen(name));
			return value < 0 ? 0 : value;
		}
	return otherwise;
}

int main(void)
{
	static char line[4096];
	int is_once = 1;

	mkdir("/proc", 0755);
	check(!mount("proc", "/proc", "proc", 0, NULL), "mount");
	check(read(open("/proc/cmdline", O_RDONLY), line, sizeof(line) - 1) > 0, "/proc/cmdline");
	groups = parameter(line, "groups=", groups);
	loops = parameter(line, "loops=", loops);
	samples = parameter(line, "samples=", samples);
	check(samples > 0 && samples <= SAMPLES_MAX, "samples");
	period_us = parameter(line, "period_us=", period_us);
	rt = parameter(line, "rt=", rt);
	thread = parameter(line, "thread=", thread);
	seed = parameter(line, "seed=", seed);
	begin_work = parameter(line, "begin=", begin_work);
	message_work = parameter(line, "message=", message_work);
	run_work = parameter(line, "run=", run_work);
	touch_kib = parameter(line, "touch=", touch_kib);
	touched = mmap(NULL, touch_kib * 1024 + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(touched != MAP_FAILED, "touch");
	// Everything else is the same in each run: what differs is where in the tick it begins, and so all that follows.
	for (unsigned long long until = now() + seed * 1370000ULL; now() < until;)
		;
	if (!strstr(line, "bench=wakeup")) {
		if (strstr(line, "bench=costs"))
			costs();
		else
			load(&is_once);
		end("done");
	}
	pthread_t last = start(woken, rt ? 80 : 0);
	if (thread)
		start(load, 0);
	else if (!fork())
		load(NULL);
	start(waker, 90);
	pthread_join(last, NULL);
	table("filtered", table("raw", INFINITY));
	int late = 0, first = -1, last_late = -1;
	for (int i = 0; i < samples; i++)
		if (times[i] > 1500000) {
			late++;
			first = first < 0 ? i : first;
			last_late = i;
		}
	printf("%d longer than 1.5 ms, samples %d to %d\n", late, first, last_late);
	end("done");
	return 0;
}
