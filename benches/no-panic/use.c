/* Reaches one function, FUNCTION, and nothing else of the library. */
void FUNCTION(void);
void (*volatile reached)(void) = FUNCTION;
int main(void) { return !reached; }
