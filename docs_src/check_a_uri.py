import onym

report = onym.check("llm://localhost:11434/llama3:8b?temperature=0.2&maxtokens=9")

for found in report.diagnostics:
    print(found.severity, found.code, f"{found.start}-{found.end}", found.message)
print(report.fixed())
