// SPDX-License-Identifier: Apache-2.0
// The load of mixed.slrec: two hogs, a task every 10 ms, and a ping-pong over pipes, for 2 s.
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>
#include <sys/prctl.h>
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec+t.tv_nsec/1e9;}
static void burn(double s){double e=now()+s;while(now()<e)for(volatile int i=0;i<200;i++);}
int main(void){double end=now()+2.0;char c='x';
for(int i=0;i<2;i++)if(!fork()){prctl(PR_SET_NAME,"hog");while(now()<end)burn(0.001);_exit(0);}
if(!fork()){prctl(PR_SET_NAME,"periodic");struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);
 while(now()<end){burn(0.001);t.tv_nsec+=10000000;if(t.tv_nsec>=1000000000){t.tv_nsec-=1000000000;t.tv_sec++;}clock_nanosleep(CLOCK_MONOTONIC,TIMER_ABSTIME,&t,0);}_exit(0);}
int a[2],b[2];pipe(a);pipe(b);
if(!fork()){prctl(PR_SET_NAME,"pong");close(a[1]);close(b[0]);while(read(a[0],&c,1)==1)write(b[1],&c,1);_exit(0);}
if(!fork()){prctl(PR_SET_NAME,"ping");close(a[0]);close(b[1]);while(now()<end){burn(0.0002);write(a[1],&c,1);if(read(b[0],&c,1)!=1)break;usleep(2000);}_exit(0);}
close(a[0]);close(a[1]);close(b[0]);close(b[1]);while(wait(0)>0);return 0;}
