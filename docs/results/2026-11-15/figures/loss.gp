set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'
set output 'loss.svg'
set title 'Loss over time at 100mbit (composed of losses and step times)'
set xlabel 'seconds'
set ylabel 'loss, mean of the step and two on either side'
set grid
set key outside right top Left reverse samplen 3
set logscale x 10
plot 'loss.dat' index 0 using 1:2 with lines linewidth 2 dashtype 1 linecolor rgb '#D55E00' title 'DDP', \
  'loss.dat' index 1 using 1:2 with lines linewidth 2 dashtype 2 linecolor rgb '#0072B2' title 'DDP, fp16 hook', \
  'loss.dat' index 2 using 1:2 with lines linewidth 2 dashtype 3 linecolor rgb '#009E73' title 'DDP, PowerSGD hook rank 32', \
  'loss.dat' index 3 using 1:2 with lines linewidth 2 dashtype 4 linecolor rgb '#CC79A7' title 'laconic, raw', \
  'loss.dat' index 4 using 1:2 with lines linewidth 2 dashtype 5 linecolor rgb '#E69F00' title 'laconic, 16 bits', \
  'loss.dat' index 5 using 1:2 with lines linewidth 2 dashtype 6 linecolor rgb '#56B4E9' title 'laconic, 4 bits', \
  'loss.dat' index 6 using 1:2 with lines linewidth 2 dashtype 7 linecolor rgb '#7F7F7F' title 'laconic, PowerSGD rank 32, 8 bits', \
  'loss.dat' index 7 using 1:2 with lines linewidth 2 dashtype 8 linecolor rgb '#000000' title 'laconic, compressed Adam, sign'
set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'
set output 'loss.png'
replot
